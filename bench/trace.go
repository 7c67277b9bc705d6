package bench

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/coppice-llm/coppice/kv"
)

// ErrTrace is wrapped by the errors of [ReadTrace] and [OpenTrace] that blame
// the bytes rather than the reading of them.
var ErrTrace = errors.New("bench: bad prefix trace")

// Limits of a prefix trace, generated or read. A file with a count above them is
// treated as damaged: 2^20 requests of mean length would take 14 GB, and no model has
// a context of 2^24 tokens.
const (
	MaxTraceRequests = 1 << 20
	MaxRequestTokens = 1 << 24
)

const (
	traceMagic   = "PFXT"
	traceVersion = 1
	// traceChunk is the largest number of tokens or requests to allocate memory for before their
	// bytes were read. The count in the file may be damaged and far too high.
	traceChunk = 1 << 16
)

// Trace is a prefix trace: complete token sequences in order of arrival, each of which
// a prefix cache first matches and then inserts. It is immutable.
//
// The file format is little-endian: "PFXT", u32 version (1), u32 number of requests;
// then for each request u32 n and n u32 token ids. Nothing follows the last request.
type Trace struct {
	requests [][]kv.Token
	tokens   int // sum of the lengths
	longest  int // tokens of the longest request

	turns []traceTurn // by request; nil: the trace has no times
	told  told        // what the cache is told of them beside the times
}

// Requests returns the number of requests.
func (t *Trace) Requests() int { return len(t.requests) }

// Tokens returns the number of tokens of all requests together.
func (t *Trace) Tokens() int { return t.tokens }

// Request returns the i-th request by arrival, from 0. The slice belongs to the trace.
func (t *Trace) Request(i int) []kv.Token { return t.requests[i] }

func (t *Trace) add(request []kv.Token) {
	t.requests = append(t.requests, request)
	t.tokens += len(request)
	t.longest = max(t.longest, len(request))
}

// OpenTrace reads a trace from a file. Errors are those of the file and of [ReadTrace].
func OpenTrace(path string) (*Trace, error) {
	return openTrace(path, ReadTrace)
}

// openTrace reads the file at path. Errors name the path.
func openTrace[T any](path string, read func(io.Reader) (T, error)) (t T, err error) {
	f, err := os.Open(path)
	if err != nil {
		return t, fmt.Errorf("bench: can't read the trace: %w", err)
	}
	defer f.Close()
	if t, err = read(f); err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return t, err
}

// ReadTrace reads a trace and expects the end of r after it. An error that wraps
// [ErrTrace] names the byte and the request of the fault: bad magic, unknown version, a
// count above the limits, an early end, bytes after the last request. Each request is
// decoded into its own slice, so memory grows with the tokens read and not with the
// counts that the file claims.
func ReadTrace(r io.Reader) (*Trace, error) {
	d := &traceReader{r: bufio.NewReaderSize(r, 1<<16)}
	requests := d.header()
	t := &Trace{requests: make([][]kv.Token, 0, min(requests, traceChunk))}
	for i := 0; i < requests && d.err == nil; i++ {
		t.add(d.request(i, requests))
	}
	if d.err != nil {
		return nil, d.err
	}
	switch _, err := d.r.ReadByte(); err {
	case io.EOF:
		return t, nil
	case nil:
		return nil, fmt.Errorf("%w: byte %d: more bytes after the last of %d requests", ErrTrace, d.at, requests)
	default:
		return nil, fmt.Errorf("bench: reading a prefix trace at byte %d: %w", d.at, err)
	}
}

// traceReader decodes a trace and tracks its position for error messages. After the first error it reads
// nothing more.
type traceReader struct {
	r   *bufio.Reader
	at  int64 // bytes decoded
	buf []byte
	err error // the first one
}

// fail keeps the first error.
func (d *traceReader) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
}

// recorded returns a hint for the error message if a file begins like a recorded trace
// of JSON lines; "" otherwise.
func recorded(begin []byte) string {
	if !strings.HasPrefix(strings.TrimLeft(string(begin), " \t\r\n"), "{") {
		return ""
	}
	return "; a recorded one, of JSON lines, is read by coppice analyze trace and coppice sim fleet --traces"
}

// header reads magic and version, and returns the number of requests.
func (d *traceReader) header() (requests int) {
	if b := d.take(4, "the magic"); string(b) != traceMagic {
		d.fail("%w: byte 0: magic %q, want %q: this is no prefix trace%s", ErrTrace, b, traceMagic, recorded(b))
	}
	if version := d.count("the version", 1<<32-1); version != traceVersion {
		d.fail("%w: byte 4: version %d, want %d", ErrTrace, version, traceVersion)
	}
	return d.count("the number of requests", MaxTraceRequests)
}

// request reads request i of a trace of this many requests, chunk by chunk, so that memory grows
// with the bytes that are really there.
func (d *traceReader) request(i, of int) []kv.Token {
	what := func(part string) string { return fmt.Sprintf("%s of request %d of %d", part, i, of) }
	n := d.count(what("the length"), MaxRequestTokens)
	tokens := make([]kv.Token, 0, min(n, traceChunk))
	for len(tokens) < n && d.err == nil {
		for b := d.take(4*min(n-len(tokens), traceChunk), what(fmt.Sprintf("the %d tokens", n))); len(b) > 0; b = b[4:] {
			tokens = append(tokens, kv.Token(binary.LittleEndian.Uint32(b)))
		}
	}
	return tokens
}

// count reads a u32, which what names in errors. It returns 0 after an error. A number above most is an
// error.
func (d *traceReader) count(what string, most uint32) int {
	at := d.at
	b := d.take(4, what)
	if b == nil {
		return 0
	}
	n := binary.LittleEndian.Uint32(b)
	if n > most {
		d.fail("%w: byte %d: %s is %d, at most %d are read", ErrTrace, at, what, n, most)
		return 0
	}
	return int(n)
}

// take returns the next n bytes, valid until the next call; nil after an error. what names the bytes in
// errors.
func (d *traceReader) take(n int, what string) []byte {
	if d.err != nil {
		return nil
	}
	if cap(d.buf) < n {
		d.buf = make([]byte, n)
	}
	got, err := io.ReadFull(d.r, d.buf[:n])
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		d.fail("%w: truncated: it ends at byte %d, inside or before %s", ErrTrace, d.at+int64(got), what)
	case err != nil:
		d.fail("bench: reading a prefix trace at byte %d: %w", d.at+int64(got), err)
	}
	if d.err != nil {
		return nil
	}
	d.at += int64(n)
	return d.buf[:n]
}

// WriteTo implements io.WriterTo: it writes the trace in the format of [ReadTrace].
func (t *Trace) WriteTo(w io.Writer) (int64, error) {
	b := binary.LittleEndian.AppendUint32([]byte(traceMagic), traceVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(t.requests)))
	n, err := w.Write(b)
	written := int64(n)
	for _, request := range t.requests {
		if err != nil {
			break
		}
		b = kv.AppendTokens(binary.LittleEndian.AppendUint32(b[:0], uint32(len(request))), request)
		n, err = w.Write(b)
		written += int64(n)
	}
	if err != nil {
		return written, fmt.Errorf("bench: writing a prefix trace: %w", err)
	}
	return written, nil
}
