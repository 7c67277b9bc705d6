package hub

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"
)

const testFile = "name-Q4_K_M.gguf"

func testRef(file string) Ref { return Ref{testRepo, "main", file} }

// pullBy returns what a hub of this configuration pulls.
func pullBy(t *testing.T, cfg Config) *Model {
	t.Helper()
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	m, err := h.Pull(t.Context(), testRef(""), nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// checkPulled checks that the model's file has the contents data.
func checkPulled(t *testing.T, m *Model, data []byte) {
	t.Helper()
	got, err := os.ReadFile(m.Path)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%s: %d bytes, want %d: %v", m.Path, len(got), len(data), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(m.Path))), "blobs", "*.incomplete")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestPull: the layout is that of Hugging Face's tools, and files in the cache are not
// downloaded again.
func TestPull(t *testing.T) {
	data := noise(700_000)
	f, dir := startHub(t, map[string][]byte{testFile: data, "name-Q8_0.gguf": noise(10), "README.md": noise(5)}), t.TempDir()
	h := f.open(t, dir)
	if _, err := h.Find(testRef("")); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("found in an empty cache: %v", err)
	}
	var steps []int64
	m, err := h.Pull(t.Context(), testRef(""), func(done, total int64) {
		if steps = append(steps, done); total != int64(len(data)) {
			t.Fatalf("total %d", total)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	checkPulled(t, m, data)
	root := filepath.Join(dir, "models--owner--name")
	if m.Path != filepath.Join(root, "snapshots", testCommit, testFile) || m.Bytes != int64(len(data)) || m.Quantisation() != "Q4_K_M" {
		t.Errorf("%+v", m)
	}
	if to, err := os.Readlink(m.Path); runtime.GOOS != "windows" && (err != nil || to != "../../blobs/"+sha(data)) { // there, few users may make links
		t.Errorf("link to %q: %v", to, err)
	}
	blob, err := os.Stat(blobPath(dir, data))
	if err != nil {
		t.Fatal(err)
	}
	if file, err := os.Stat(m.Path); err != nil || !os.SameFile(file, blob) {
		t.Errorf("%s is a file of its own: %v", m.Path, err)
	}
	if commit, err := os.ReadFile(filepath.Join(root, "refs", "main")); err != nil || string(commit) != testCommit {
		t.Errorf("refs/main: %q %v", commit, err)
	}
	if !slices.IsSorted(steps) || steps[len(steps)-1] != int64(len(data)) {
		t.Errorf("progress %v", steps)
	}
	if f.leaked || f.missing {
		t.Errorf("the token: leaked %v, missing %v", f.leaked, f.missing)
	}
	before := len(f.asked())
	if m, err := h.Pull(t.Context(), testRef("Q4_K_M"), nil); err != nil || m.Ref.File != testFile {
		t.Errorf("again: %v", err)
	}
	if n := len(f.asked()) - before; n != 1 {
		t.Errorf("%d requests to see that it is there, want the list alone", n)
	}
	found, err := h.Find(testRef(""))
	if err != nil || found.Path != m.Path {
		t.Errorf("find: %v %v", found, err)
	}
	all, err := h.Models()
	if err != nil || len(all) != 1 || all[0].Ref.String() != "hf:owner/name:"+testFile {
		t.Errorf("models %v: %v", all, err)
	}
}

// TestPullDirectory: from a repository without GGUF, Pull downloads the files of a model
// directory, in large-file storage or not.
func TestPullDirectory(t *testing.T) {
	files := map[string][]byte{"config.json": []byte("{}"), "tokenizer.json": noise(5000), "tokenizer_config.json": []byte("{ }"), "pytorch_model.bin": noise(9),
		"model.safetensors.index.json": []byte("{  }"), "model-00001-of-00002.safetensors": noise(100), "model-00002-of-00002.safetensors": noise(101),
		"additional_chat_templates/tool.jinja": []byte("x"), "onnx/model.onnx": noise(8)}
	f, dir := startHub(t, files), t.TempDir()
	f.plain = map[string]bool{"config.json": true, "tokenizer_config.json": true, "model.safetensors.index.json": true, "additional_chat_templates/tool.jinja": true}
	h := f.open(t, dir)
	m, err := h.Pull(t.Context(), testRef(""), nil)
	if err != nil {
		t.Fatal(err)
	}
	for path, data := range files {
		got, err := os.ReadFile(filepath.Join(m.Path, filepath.FromSlash(path)))
		if wanted := !strings.Contains(path, "onnx") && !strings.Contains(path, "pytorch"); wanted != (err == nil) || wanted && !bytes.Equal(got, data) {
			t.Errorf("%s: %q %v", path, got, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "models--owner--name", "blobs", gitHash([]byte("{}")))); err != nil {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(m.Path, "model-00002-of-00002.safetensors")); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Find(testRef("")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("found without a part: %v", err)
	}
	if m, err := h.Pull(t.Context(), testRef(""), nil); err != nil || len(f.asked()) == 0 {
		t.Errorf("%v %v", m, err)
	}
	if all, err := h.Models(); err != nil || len(all) != 1 || all[0].Ref.String() != "hf:owner/name" {
		t.Errorf("models %v: %v", all, err)
	}
}

// TestPullResumes: interrupted downloads continue where they stopped, in the same pull or the
// next.
func TestPullResumes(t *testing.T) {
	data := noise(300_000)
	f, dir := startHub(t, map[string][]byte{testFile: data}), t.TempDir()
	h := f.open(t, dir)
	cuts := 0
	f.fault = func(w http.ResponseWriter, r *http.Request, n int) bool {
		if strings.HasPrefix(r.URL.Path, "/"+testFile) && cuts < 7 {
			cuts++
			cut(w, r, data, 40_000)
			return true
		}
		return false
	}
	m, err := h.Pull(t.Context(), testRef(""), nil)
	if err != nil {
		t.Fatal(err)
	}
	checkPulled(t, m, data)
	if last := f.asked()[len(f.asked())-1]; !strings.Contains(last, "bytes=") || strings.HasSuffix(last, "bytes=0-") {
		t.Errorf("the last request was %q, want one for the rest", last)
	}

	more := noise(200_000)
	f.files = map[string][]byte{testFile: more}
	f.fault = func(w http.ResponseWriter, r *http.Request, n int) bool {
		if from, _ := begin(r); strings.HasPrefix(r.URL.Path, "/"+testFile) {
			cut(w, r, more, max(0, 50_000-from))
			return true
		}
		return false
	}
	if _, err := h.Pull(t.Context(), testRef(""), nil); !errors.Is(err, ErrAnswer) || !strings.Contains(err.Error(), "pull again") {
		t.Fatalf("a hub that always hangs up: %v", err)
	}
	if info, err := os.Stat(blobPath(dir, more) + ".incomplete"); err != nil || info.Size() != 50_000 {
		t.Fatalf("kept: %v %v", info, err)
	}
	f.fault = nil
	m, err = f.open(t, dir).Pull(t.Context(), testRef(""), nil)
	if err != nil {
		t.Fatal(err)
	}
	checkPulled(t, m, more)
	if last := f.asked()[len(f.asked())-1]; !strings.HasSuffix(last, "bytes=50000-") {
		t.Errorf("the last request was %q", last)
	}
}

// TestPullWithoutRanges: a server without range support sends the whole file again, and the
// earlier bytes are discarded. Bytes of an earlier attempt are discarded, too, if the hub's file
// does not have them.
func TestPullWithoutRanges(t *testing.T) {
	data := noise(100_000)
	for name, tc := range map[string]struct {
		left    []byte
		noRange bool
	}{
		"no ranges":      {data[:30_000], true},
		"other bytes":    {noise(40_000), false},
		"as long":        {make([]byte, len(data)), false},
		"longer":         {make([]byte, len(data)+1), false},
		"whole":          {data, false},
		"whole, no hash": {append(slices.Clone(data[1:]), 0), true},
	} {
		f, dir := startHub(t, map[string][]byte{testFile: data}), t.TempDir()
		f.noRange = tc.noRange
		if err := os.MkdirAll(filepath.Dir(blobPath(dir, data)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(blobPath(dir, data)+".incomplete", tc.left, 0o644); err != nil {
			t.Fatal(err)
		}
		m, err := f.open(t, dir).Pull(t.Context(), testRef(""), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		checkPulled(t, m, data)
	}
}

// refusalCase is a response that no second attempt would mend.
type refusalCase struct {
	fault func(http.ResponseWriter, *http.Request, int) bool
	kind  error
	want  string // substring of the error
	tries int    // number of requests, 0: any
}

// listRefusals are responses to every request.
func listRefusals() map[string]refusalCase {
	status := func(code int, header, text string) func(http.ResponseWriter, *http.Request, int) bool {
		return func(w http.ResponseWriter, r *http.Request, n int) bool {
			if header != "" {
				w.Header().Set("X-Error-Code", header)
			}
			w.WriteHeader(code)
			w.Write([]byte(text))
			return true
		}
	}
	return map[string]refusalCase{
		"401":            {status(401, "", `{"error":"Invalid username"}`), ErrDenied, "Invalid username", 1},
		"403":            {status(403, "", "no"), ErrDenied, "HF_TOKEN", 1},
		"gated":          {status(403, "GatedRepo", ""), ErrDenied, "accept its conditions at", 1},
		"404":            {status(404, "RepoNotFound", "<html>no</html>"), ErrMissing, "no such model", 1},
		"no revision":    {status(404, "RevisionNotFound", ""), ErrMissing, "no such revision", 1},
		"429":            {status(429, "", ""), ErrAnswer, "429", 5},
		"500":            {status(500, "", ""), ErrAnswer, "500", 5},
		"503":            {status(503, "", "resting"), ErrAnswer, "resting", 5},
		"418":            {status(418, "", ""), ErrAnswer, "418", 1},
		"no JSON":        {status(200, "", "<html>"), ErrAnswer, "can't be read", 1},
		"no commit":      {status(200, "", `{"sha":"../..","siblings":[]}`), ErrAnswer, "commit", 1},
		"a path outside": {status(200, "", `{"sha":"`+testCommit+`","siblings":[{"rfilename":"../x","size":1,"blobId":"`+testCommit+`"}]}`), ErrAnswer, "../x", 1},
		"a hash outside": {status(200, "", `{"sha":"`+testCommit+`","siblings":[{"rfilename":"x","size":1,"blobId":"../../x"}]}`), ErrAnswer, "../../x", 1},
		"nothing there":  {status(200, "", `{"sha":"`+testCommit+`","siblings":[{"rfilename":"model.bin","size":1,"blobId":"`+testCommit+`"}]}`), ErrMissing, "no GGUF file", 1},
	}
}

// fileRefusals are responses to requests for the file only.
func fileRefusals(data []byte) map[string]refusalCase {
	download := func(do func(http.ResponseWriter, *http.Request)) func(http.ResponseWriter, *http.Request, int) bool {
		return func(w http.ResponseWriter, r *http.Request, n int) bool {
			if !strings.HasPrefix(r.URL.Path, "/"+testFile) {
				return false
			}
			do(w, r)
			return true
		}
	}
	return map[string]refusalCase{
		"wrong bytes": {download(func(w http.ResponseWriter, r *http.Request) { w.Write(make([]byte, len(data))) }), ErrHash, "its hash is", 3},
		"too short": {download(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "10")
			w.Write(data[:10])
		}), ErrHash, "10 bytes come", 3},
		"too long": {download(func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			w.Write(append(noise(9), data...))
		}), ErrHash, "longer than", 3},
		"another range": {download(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Range", "bytes 5-9/10")
			w.WriteHeader(206)
		}), ErrAnswer, "5-9/10", 3},
		"file gone":          {download(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(404) }), ErrMissing, "", 3},
		"file forbidden":     {download(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(403) }), ErrDenied, "", 3},
		"always busy":        {download(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(502) }), ErrAnswer, "given up after 5", 0},
		"redirects for ever": {download(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.String(), http.StatusFound) }), ErrAnswer, "more than 10", 0},
		"to a file": {download(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		}), ErrAnswer, "may not", 0},
	}
}

// TestPullRefuses: each permanent failure is reported by its kind, and leaves nothing that
// could be taken for the file.
func TestPullRefuses(t *testing.T) {
	data := noise(1000)
	cases := listRefusals()
	maps.Copy(cases, fileRefusals(data))
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f, dir := startHub(t, map[string][]byte{testFile: data}), t.TempDir()
			f.fault = tc.fault
			_, err := f.open(t, dir).Pull(t.Context(), testRef(""), nil)
			if !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), testToken) || strings.Contains(err.Error(), "hush") {
				t.Errorf("error %v, want %v with %q", err, tc.kind, tc.want)
			}
			if n := len(f.asked()); tc.tries != 0 && n != tc.tries {
				t.Errorf("%d requests, want %d: %v", n, tc.tries, f.asked())
			}
			if _, err := os.Stat(blobPath(dir, data)); err == nil {
				t.Error("the blob is there")
			}
			if tc.kind == ErrHash {
				if _, err := os.Stat(blobPath(dir, data) + ".incomplete"); err == nil {
					t.Error("wrong bytes were kept")
				}
			}
			if _, err := f.open(t, dir).Find(testRef("")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("found: %v", err)
			}
		})
	}
}

// TestPullTriesAgain: requests that fail temporarily are repeated, and the token is sent to the
// hub only.
func TestPullTriesAgain(t *testing.T) {
	data := noise(1000)
	f, dir := startHub(t, map[string][]byte{testFile: data}), t.TempDir()
	f.fault = func(w http.ResponseWriter, r *http.Request, n int) bool {
		switch n {
		case 0, 2, 5:
			w.Header().Set("Retry-After", "0")
			w.WriteHeader([]int{429, 0, 500, 0, 0, 503}[n])
			return true
		}
		return false
	}
	m, err := f.open(t, dir).Pull(t.Context(), testRef(""), nil)
	if err != nil {
		t.Fatal(err)
	}
	checkPulled(t, m, data)
	if f.leaked || f.missing {
		t.Errorf("the token: leaked %v, missing %v", f.leaked, f.missing)
	}
}

// TestPullStalls: if a server falls silent, the rest is requested again. The limit is short only
// for the wait that must exceed it, so that no slow machine exceeds it elsewhere.
func TestPullStalls(t *testing.T) {
	data := noise(10_000)
	f, dir := startHub(t, map[string][]byte{testFile: data}), t.TempDir()
	stalled, begun := false, make(chan struct{})
	cdn := f.cdn.Config.Handler
	f.cdn.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if stalled {
			cdn.ServeHTTP(w, r)
			return
		}
		stalled = true
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		w.Write(data[:1000])
		w.(http.Flusher).Flush()
		select {
		case <-begun: // the client has the first bytes
		case <-r.Context().Done():
		}
		w.Write(data[1000:4000])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	h, err := New(Config{Dir: dir, Endpoint: f.hub.URL, Token: testToken, Wait: time.Nanosecond, Stall: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	m, err := h.Pull(t.Context(), testRef(""), func(done, _ int64) {
		switch done {
		case 1000: // the next bytes start the wait that is cut short
			h.cfg.Stall = 20 * time.Millisecond
			close(begun)
		case 4000:
			h.cfg.Stall = time.Hour
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	checkPulled(t, m, data)
	if last := f.asked()[len(f.asked())-1]; !strings.HasSuffix(last, "bytes=4000-") {
		t.Errorf("the last request was %q", last)
	}
}

// TestEndpointSpelling checks that the endpoint gets the token also if its scheme is in capitals.
func TestEndpointSpelling(t *testing.T) {
	data := noise(100)
	f := startHub(t, map[string][]byte{testFile: data})
	checkPulled(t, pullBy(t, Config{Dir: t.TempDir(), Endpoint: "HTTP" + strings.TrimPrefix(f.hub.URL, "http"), Token: testToken}), data)
	if f.leaked || f.missing {
		t.Errorf("the token: leaked %v, missing %v", f.leaked, f.missing)
	}
}

// TestPullOnAFullDisk: a full disk is reported, and not retried.
func TestPullOnAFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full")
	}
	data := noise(100_000)
	f, dir := startHub(t, map[string][]byte{testFile: data}), t.TempDir()
	if err := os.MkdirAll(filepath.Dir(blobPath(dir, data)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/full", blobPath(dir, data)+".incomplete"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.open(t, dir).Pull(t.Context(), testRef(""), nil); !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "pull again") {
		t.Errorf("%v", err)
	}
	if n := len(f.asked()); n != 3 {
		t.Errorf("%d requests", n)
	}
}

// TestPullEnds: a cancelled pull ends, both while it downloads and while it waits for another
// pull, and keeps the bytes that it has received.
func TestPullEnds(t *testing.T) {
	data := noise(100_000)
	f, dir := startHub(t, map[string][]byte{testFile: data}), t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	f.fault = func(w http.ResponseWriter, r *http.Request, n int) bool {
		if strings.HasPrefix(r.URL.Path, "/"+testFile) {
			cut(w, r, data, 50_000)
			cancel()
			return true
		}
		return false
	}
	if _, err := f.open(t, dir).Pull(ctx, testRef(""), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	lock := flock.New(filepath.Join(dir, ".locks", "models--owner--name", sha(data)+".lock"))
	if ok, err := lock.TryLock(); !ok || err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := f.open(t, dir).Pull(ctx, testRef(""), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while another has the lock: %v", err)
	}
}

// TestPullOffline: a pull fails if no server answers.
func TestPullOffline(t *testing.T) {
	h, err := New(Config{Dir: t.TempDir(), Endpoint: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Pull(t.Context(), testRef(""), nil); err == nil || !strings.Contains(err.Error(), "HF_ENDPOINT") {
		t.Errorf("%v", err)
	}
}
