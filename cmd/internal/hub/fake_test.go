package hub

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	testRepo   = "owner/name"
	testCommit = "0123456789abcdef0123456789abcdef01234567"
	testToken  = "a-secret-token"
)

// fakeHub implements the part of Hugging Face's API that Pull uses. Files in large-file storage
// are on a second server.
type fakeHub struct {
	hub, cdn *httptest.Server

	mu       sync.Mutex
	commit   string
	files    map[string][]byte
	plain    map[string]bool // files not in large-file storage
	noRange  bool
	fault    func(w http.ResponseWriter, r *http.Request, n int) bool // may answer request n in place of the server
	requests []string                                                 // "GET PATH RANGE"
	leaked   bool                                                     // the token was sent to the second server
	missing  bool                                                     // or not sent to the first
}

func startHub(t *testing.T, files map[string][]byte) *fakeHub {
	t.Helper()
	f := &fakeHub{commit: testCommit, files: files, plain: map[string]bool{}}
	f.hub = httptest.NewServer(http.HandlerFunc(f.serveHub))
	f.cdn = httptest.NewServer(http.HandlerFunc(f.serveCDN))
	t.Cleanup(f.hub.Close)
	t.Cleanup(f.cdn.Close)
	return f
}

// open returns a Hub for dir that uses f, with hardly any waiting.
func (f *fakeHub) open(t *testing.T, dir string) *Hub {
	t.Helper()
	h, err := New(Config{Dir: dir, Endpoint: f.hub.URL, Token: testToken, Wait: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func (f *fakeHub) note(r *http.Request) int {
	f.requests = append(f.requests, strings.TrimSpace(r.URL.Path+" "+r.Header.Get("Range")))
	return len(f.requests) - 1
}

// asked returns the requests that f has received so far.
func (f *fakeHub) asked() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

func (f *fakeHub) serveHub(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.note(r)
	f.missing = f.missing || r.Header.Get("Authorization") != "Bearer "+testToken
	if f.fault != nil && f.fault(w, r, n) {
		return
	}
	if r.URL.Path == "/api/models/"+testRepo+"/revision/main" {
		json.NewEncoder(w).Encode(f.listing())
		return
	}
	path, ok := strings.CutPrefix(r.URL.Path, "/"+testRepo+"/resolve/"+f.commit+"/")
	data, there := f.files[path]
	switch {
	case !ok || !there:
		w.Header().Set("X-Error-Code", "EntryNotFound")
		w.WriteHeader(http.StatusNotFound)
	case f.plain[path]:
		f.send(w, r, data)
	default:
		http.Redirect(w, r, f.cdn.URL+"/"+path+"?signature=hush", http.StatusFound)
	}
}

func (f *fakeHub) serveCDN(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.note(r)
	f.leaked = f.leaked || r.Header.Get("Authorization") != ""
	if f.fault != nil && f.fault(w, r, n) {
		return
	}
	f.send(w, r, f.files[strings.TrimPrefix(r.URL.Path, "/")])
}

func (f *fakeHub) send(w http.ResponseWriter, r *http.Request, data []byte) {
	if from, ok := begin(r); ok && !f.noRange {
		if from >= len(data) {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(data)-1, len(data)))
		w.Header().Set("Content-Length", strconv.Itoa(len(data)-from))
		w.WriteHeader(http.StatusPartialContent)
		w.Write(data[from:])
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.Write(data)
}

func begin(r *http.Request) (from int, ok bool) {
	_, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from)
	return from, err == nil
}

func (f *fakeHub) listing() map[string]any {
	var siblings []map[string]any
	for path, data := range f.files {
		s := map[string]any{"rfilename": path, "size": len(data), "blobId": gitHash(data)}
		if !f.plain[path] {
			s["lfs"] = map[string]any{"sha256": sha(data), "size": len(data), "pointerSize": 130}
		}
		siblings = append(siblings, s)
	}
	return map[string]any{"id": testRepo, "sha": f.commit, "siblings": siblings}
}

func sha(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func gitHash(data []byte) string {
	sum := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(data)), data...))
	return hex.EncodeToString(sum[:])
}

// noise returns n pseudo-random bytes.
func noise(n int) []byte {
	data := make([]byte, n)
	x := uint32(n) + 1
	for i := range data {
		x = x*1664525 + 1013904223
		data[i] = byte(x >> 24)
	}
	return data
}

// cut sends the beginning of the requested range of data, as many bytes as the parameter bytes
// says, and hangs up.
func cut(w http.ResponseWriter, r *http.Request, data []byte, bytes int) {
	from, ranged := begin(r)
	if ranged {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(data)-1, len(data)))
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(data)-from))
	if ranged {
		w.WriteHeader(http.StatusPartialContent)
	}
	w.Write(data[from:min(from+bytes, len(data))])
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err == nil {
		buffered.Flush()
		conn.Close()
	}
}

func blobPath(dir string, data []byte) string {
	return filepath.Join(dir, "models--owner--name", "blobs", sha(data))
}
