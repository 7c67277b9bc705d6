package hub

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
)

// listingHub is a hub whose every answer is the listing that write writes.
func listingHub(t *testing.T, stall time.Duration, write http.HandlerFunc) *Hub {
	t.Helper()
	s := httptest.NewServer(write)
	t.Cleanup(s.Close)
	h, err := New(Config{Dir: t.TempDir(), Endpoint: s.URL, Wait: time.Nanosecond, Stall: stall})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// writeListing writes a listing of this many files, each with fields that Pull doesn't need.
func writeListing(w io.Writer, files int) {
	fmt.Fprintf(w, `{"id":%q,"sha":%q,"siblings":[`, testRepo, testCommit)
	for i := range files {
		if i > 0 {
			io.WriteString(w, ",")
		}
		fmt.Fprintf(w, `{"rfilename":"a/%06d.bin","size":5,"blobId":%q,"lfs":{"sha256":"%064x","size":5,"pointerSize":130}}`, i, testCommit, i)
	}
	io.WriteString(w, `],"cardData":{"tags":["a","b"]}}`)
}

// TestPullListing: a listing with fields that Pull doesn't need, in any order, is read.
func TestPullListing(t *testing.T) {
	h := listingHub(t, time.Minute, func(w http.ResponseWriter, _ *http.Request) { writeListing(w, 100) })
	commit, files, err := h.list(t.Context(), testRef(""))
	if err != nil || commit != testCommit || len(files) != 100 || files[7].path != "a/000007.bin" || files[7].hash != fmt.Sprintf("%064x", 7) {
		t.Fatalf("%v: commit %s, %v", err, commit, files)
	}
}

// TestPullEmptyFiles: a long listing of files without names does not take many times its length in
// memory.
func TestPullEmptyFiles(t *testing.T) {
	text := `{"siblings":[{}` + strings.Repeat(",{}", 1<<20) + `]}`
	h := listingHub(t, time.Minute, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) })
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := h.Pull(t.Context(), testRef(""), nil)
	runtime.ReadMemStats(&after)
	if all := int(after.TotalAlloc - before.TotalAlloc); err == nil || all > 5*len(text) {
		t.Errorf("%d bytes were allocated for %d bytes of listing: %v", all, len(text), err)
	}
}

// TestPullRefusesListings: a listing that is too long, or of too many files, is refused, and one that
// stalls or drips ends.
func TestPullRefusesListings(t *testing.T) {
	head := fmt.Sprintf(`{"sha":%q,"x":"`, testCommit)
	for name, tc := range map[string]struct {
		stall time.Duration
		write http.HandlerFunc
		want  string
	}{
		"long": {time.Minute, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, head)
			for piece := strings.Repeat("x", 1<<12); r.Context().Err() == nil; {
				io.WriteString(w, piece)
			}
		}, "more than 100000 bytes"},
		"many": {time.Minute, func(w http.ResponseWriter, _ *http.Request) { writeListing(w, 101) }, "more than 100 files"},
		"stalls": {100 * time.Millisecond, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, head)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, ""}, // on a slow machine the header may be late too
		"drips": {20 * time.Millisecond, func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				io.WriteString(w, " ")
				w.(http.Flusher).Flush()
			}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			h := listingHub(t, tc.stall, tc.write)
			if tc.want != "" {
				h.maxListing, h.maxFiles = 100_000, 100
			}
			_, err := h.Pull(ctx, testRef(""), nil)
			if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v", err)
			}
		})
	}
}
