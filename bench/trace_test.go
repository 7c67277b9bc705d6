package bench

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/coppice-llm/coppice/kv"
)

// u32s encodes numbers as little-endian u32.
func u32s(numbers ...uint32) []byte {
	var b []byte
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	return b
}

// traceBytes returns a file: the magic and the numbers after it.
func traceBytes(magic string, rest ...uint32) []byte { return append([]byte(magic), u32s(rest...)...) }

func TestReadTrace(t *testing.T) {
	file := traceBytes("PFXT", 1, 3, 2, 7, 1<<32-1, 0, 1, 9)
	for name, read := range map[string]func() (*Trace, error){
		"at once":      func() (*Trace, error) { return ReadTrace(bytes.NewReader(file)) },
		"byte by byte": func() (*Trace, error) { return ReadTrace(iotest.OneByteReader(bytes.NewReader(file))) },
		"file": func() (*Trace, error) {
			path := filepath.Join(t.TempDir(), "trace")
			if err := os.WriteFile(path, file, 0o600); err != nil {
				t.Fatal(err)
			}
			return OpenTrace(path)
		},
	} {
		got, err := read()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := [][]kv.Token{{7, 1<<32 - 1}, {}, {9}}
		if got.Requests() != 3 || got.Tokens() != 3 || got.longest != 2 {
			t.Errorf("%s: %d requests, %d tokens, longest %d", name, got.Requests(), got.Tokens(), got.longest)
		}
		for i := range want {
			if !slices.Equal(got.Request(i), want[i]) {
				t.Errorf("%s: request %d is %v, want %v", name, i, got.Request(i), want[i])
			}
		}
		var b bytes.Buffer
		if n, err := got.WriteTo(&b); err != nil || int(n) != len(file) || !bytes.Equal(b.Bytes(), file) {
			t.Errorf("%s: written %d bytes, %v: %x", name, n, err, b.Bytes())
		}
	}
}

func TestReadTraceRefuses(t *testing.T) {
	good := traceBytes("PFXT", 1, 2, 1, 7, 2, 8, 9)
	for _, tc := range []struct {
		name string
		file []byte
		want []string
	}{
		{"empty", nil, []string{"truncated", "byte 0", "magic"}},
		{"magic cut", good[:3], []string{"truncated", "byte 3"}},
		{"other magic", traceBytes("PFXU", 1, 0), []string{"byte 0", `"PFXU"`, `"PFXT"`}},
		{"other version", traceBytes("PFXT", 2, 0), []string{"byte 4", "version 2", "want 1"}},
		{"big endian", append([]byte("PFXT"), 0, 0, 0, 1), []string{"version 16777216"}},
		{"no count", good[:8], []string{"truncated", "byte 8", "number of requests"}},
		{"absurd requests", traceBytes("PFXT", 1, MaxTraceRequests+1), []string{"byte 8", "1048577", "at most 1048576"}},
		{"requests missing", traceBytes("PFXT", 1, MaxTraceRequests), []string{"truncated", "byte 12", "length of request 0 of 1048576"}},
		{"absurd length", traceBytes("PFXT", 1, 1, MaxRequestTokens+1), []string{"byte 12", "request 0 of 1", "16777217"}},
		{"tokens missing", good[:len(good)-4], []string{"truncated", "byte 28", "the 2 tokens of request 1 of 2"}},
		{"token cut", good[:len(good)-1], []string{"truncated", "byte 31"}},
		{"more bytes", append(slices.Clone(good), 0), []string{"byte 32", "more bytes after the last of 2 requests"}},
	} {
		_, err := ReadTrace(bytes.NewReader(tc.file))
		if !errors.Is(err, ErrTrace) {
			t.Errorf("%s: error %v", tc.name, err)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", tc.name, err, want)
			}
		}
	}
	// The limits themselves pass.
	if tr, err := ReadTrace(bytes.NewReader(traceBytes("PFXT", 1, 1, 1, 1<<32-1))); err != nil || tr.Tokens() != 1 {
		t.Errorf("%v", err)
	}
	if _, err := OpenTrace(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestReadTraceTellsFaultsOfTheReader checks that errors of the reader do not wrap ErrTrace.
func TestReadTraceTellsFaultsOfTheReader(t *testing.T) {
	file := traceBytes("PFXT", 1, 1, 2, 7, 8)
	for keep := range len(file) + 1 {
		broken := errors.New("broken")
		r := &failing{data: file[:keep], err: broken}
		if _, err := ReadTrace(r); !errors.Is(err, broken) || errors.Is(err, ErrTrace) {
			t.Errorf("fails after %d bytes: %v", keep, err)
		}
	}
}

// failing is a reader that returns data and then an error.
type failing struct {
	data []byte
	err  error
}

func (f *failing) Read(p []byte) (int, error) {
	if len(f.data) == 0 {
		return 0, f.err
	}
	n := copy(p, f.data)
	f.data = f.data[n:]
	return n, nil
}

func (f *failing) Write(p []byte) (int, error) {
	n := min(len(p), len(f.data))
	f.data = f.data[n:]
	if n < len(p) {
		return n, f.err
	}
	return n, nil
}

func TestWriteTraceFails(t *testing.T) {
	tr := &Trace{requests: [][]kv.Token{{1, 2}, {3}}}
	full := errors.New("full")
	for room := range 31 {
		if n, err := tr.WriteTo(&failing{data: make([]byte, room), err: full}); !errors.Is(err, full) || n != int64(room) {
			t.Errorf("room for %d bytes: %d written, %v", room, n, err)
		}
	}
	if n, err := tr.WriteTo(&failing{data: make([]byte, 32), err: full}); err != nil || n != 32 {
		t.Errorf("%d written, %v", n, err)
	}
}

// TestReadTraceBoundsMemory checks that a false count allocates little, and that a valid
// trace costs little more memory than its tokens.
func TestReadTraceBoundsMemory(t *testing.T) {
	allocated := func(file []byte) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		ReadTrace(bytes.NewReader(file))
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	for _, file := range [][]byte{
		traceBytes("PFXT", 1, MaxTraceRequests), traceBytes("PFXT", 1, 1, MaxRequestTokens),
		traceBytes("PFXT", 1, MaxTraceRequests, MaxRequestTokens, 0),
	} {
		if got := allocated(file); got > 4<<20 {
			t.Errorf("%d bytes allocated for a file of %d", got, len(file))
		}
	}
	const requests, length = 300, 3600
	file := traceBytes("PFXT", 1, requests)
	for range requests {
		file = append(append(file, u32s(length)...), make([]byte, 4*length)...)
	}
	if got := allocated(file); got > uint64(len(file))*5/4+1<<20 {
		t.Errorf("%d bytes allocated for a file of %d", got, len(file))
	}
}

// FuzzReadTrace checks that bytes are either refused with ErrTrace or equal to what the
// parsed trace writes.
func FuzzReadTrace(f *testing.F) {
	f.Add(traceBytes("PFXT", 1, 2, 1, 7, 2, 8, 9))
	f.Add(traceBytes("PFXT", 1, 0))
	f.Add(traceBytes("PFXT", 1, 1, 0, 0))
	f.Add(traceBytes("PFXT", 1, 1<<20, 1<<24))
	f.Add([]byte("PFX"))
	f.Fuzz(func(t *testing.T, file []byte) {
		tr, err := ReadTrace(bytes.NewReader(file))
		if err != nil {
			if !errors.Is(err, ErrTrace) || tr != nil {
				t.Fatalf("%v, and a trace: %v", err, tr != nil)
			}
			return
		}
		var b bytes.Buffer
		if _, err := tr.WriteTo(&b); err != nil || !bytes.Equal(b.Bytes(), file) {
			t.Fatalf("read %x, wrote %x, %v", file, b.Bytes(), err)
		}
	})
}
