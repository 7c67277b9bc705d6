package load

import (
	"bytes"
	"errors"
	"io"
	"time"
)

// MaxEventBytes limits a line of a stream and the data of one event. Chunks have some
// hundred bytes; with the token ids of a long prompt, some hundred thousand.
const MaxEventBytes = 16 << 20

// ErrEventTooLong is returned for an event above [MaxEventBytes].
var ErrEventTooLong = errors.New("load: event of more than 16 MiB")

// maxEmptyReads is the number of consecutive empty reads after which a reader counts as
// broken.
const maxEmptyReads = 100

// Event is one server-sent event.
type Event struct {
	Name []byte    // value of the event field; empty if it has none
	Data []byte    // values of the data fields, joined by line feeds
	At   time.Time // when the read that completed the event returned
}

// EventReader parses a stream of server-sent events by the WHATWG HTML standard, section
// 9.2.6: lines end in LF, CR or CRLF; lines that begin with a colon are comments; an
// event ends at an empty line and is dropped if it has no data; an event that the end of
// the stream cuts off is dropped. In steady state it does not allocate. It belongs to
// one goroutine.
type EventReader struct {
	from io.Reader
	now  func() time.Time

	buf     []byte // buf[begin:] was read but not parsed yet
	begin   int
	scanned int       // buf[begin:scanned] contains no end of a line
	at      time.Time // when the latest read returned
	err     error     // error of from, to return once buf is parsed

	name, data []byte // of the current event
	hasData    bool
	skipLF     bool // the last line ended in CR: an LF that follows belongs to it
	started    bool // the first line was read, so no byte order mark can follow
}

// NewEventReader returns a reader of the events of r. now is called once after each read
// of r.
func NewEventReader(r io.Reader, now func() time.Time) *EventReader {
	e := &EventReader{buf: make([]byte, 0, 4096)}
	e.Reset(r, now)
	return e
}

// Reset starts on another stream and keeps the buffers.
func (e *EventReader) Reset(r io.Reader, now func() time.Time) {
	*e = EventReader{from: r, now: now, buf: e.buf[:0], name: e.name[:0], data: e.data[:0]}
}

// Next returns the next event, which is valid until the next call. At the end of the
// stream it returns io.EOF. Other errors are those of the stream, [ErrEventTooLong], and
// io.ErrNoProgress.
func (e *EventReader) Next() (Event, error) {
	e.clear()
	for {
		line, err := e.line()
		if err != nil {
			return Event{}, err
		}
		if len(line) > 0 {
			if err := e.field(line); err != nil {
				return Event{}, err
			}
			continue
		}
		if e.hasData {
			return Event{Name: e.name, Data: e.data, At: e.at}, nil
		}
		e.clear()
	}
}

func (e *EventReader) clear() {
	e.name, e.data, e.hasData = e.name[:0], e.data[:0], false
}

// field parses a line that is not empty. Unknown fields are ignored; a comment is a
// field with an empty name.
func (e *EventReader) field(line []byte) error {
	field, value, _ := bytes.Cut(line, []byte{':'})
	value = bytes.TrimPrefix(value, []byte{' '})
	switch string(field) {
	case "data":
		if len(e.data)+len(value) >= MaxEventBytes {
			return ErrEventTooLong
		}
		if e.hasData {
			e.data = append(e.data, '\n')
		}
		e.data, e.hasData = append(e.data, value...), true
	case "event":
		e.name = append(e.name[:0], value...)
	}
	return nil
}

// line returns the next line without its end, valid until the next call.
func (e *EventReader) line() ([]byte, error) {
	for {
		if e.skipLF && e.begin < len(e.buf) {
			e.skipLF = false
			if e.buf[e.begin] == '\n' {
				e.begin++
				e.scanned = max(e.scanned, e.begin)
			}
		}
		if i := lineEnd(e.buf[e.scanned:]); i >= 0 && (e.started || e.mark()) {
			end := e.scanned + i
			line := e.buf[e.begin:end]
			e.skipLF = e.buf[end] == '\r'
			e.begin, e.scanned = end+1, end+1
			return line, nil
		}
		e.scanned = len(e.buf)
		if err := e.fill(); err != nil {
			return nil, err
		}
	}
}

// mark skips a byte order mark at the beginning of the stream and returns true. Call it once, when
// the end of the first line is in the buffer: the buffer then has the whole mark, if there is one.
func (e *EventReader) mark() bool {
	e.started = true
	if bytes.HasPrefix(e.buf[e.begin:], []byte("\xef\xbb\xbf")) {
		e.begin += 3
	}
	return true
}

// lineEnd returns the index of the first CR or LF; -1 if there is none.
func lineEnd(b []byte) int {
	lf := bytes.IndexByte(b, '\n')
	if lf >= 0 {
		b = b[:lf]
	}
	if cr := bytes.IndexByte(b, '\r'); cr >= 0 {
		return cr
	}
	return lf
}

// fill appends one read to the buffer. It moves unparsed bytes to the front first, and
// grows the buffer if it is full.
func (e *EventReader) fill() error {
	if e.err != nil {
		return e.err
	}
	if e.begin > 0 {
		n := copy(e.buf, e.buf[e.begin:])
		e.buf, e.scanned, e.begin = e.buf[:n], e.scanned-e.begin, 0
	}
	if len(e.buf) == cap(e.buf) {
		if len(e.buf) >= MaxEventBytes {
			return ErrEventTooLong
		}
		e.buf = append(e.buf, 0)[:len(e.buf)]
	}
	for range maxEmptyReads {
		n, err := e.from.Read(e.buf[len(e.buf):cap(e.buf)])
		e.buf = e.buf[:len(e.buf)+n]
		e.err = err
		if n > 0 {
			e.at = e.now()
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}
