package load

import (
	"bufio"
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

// Event is one server-sent event.
type Event struct {
	Data []byte    // values of the data fields, joined by line feeds
	At   time.Time // when the read that completed the event returned
}

// EventReader parses a stream of server-sent events by the WHATWG HTML standard, section
// 9.2.6: lines end in LF, CR or CRLF; lines that begin with a colon are comments; an
// event ends at an empty line and is dropped if it has no data; an event that the end of
// the stream cuts off is dropped. In steady state it does not allocate. It belongs to
// one goroutine.
type EventReader struct {
	from    timed
	lines   bufio.Scanner
	buf     []byte          // memory of lines
	split   bufio.SplitFunc // splitLine
	data    []byte          // of the current event
	hasData bool
	skipLF  bool // the last line ended in CR: an LF that follows belongs to it
	started bool // the first line was read, so no byte order mark can follow
}

// timed reads from a stream and takes the time of each read.
type timed struct {
	io.Reader
	now func() time.Time
	at  time.Time // when the latest read returned
}

func (t *timed) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	if n > 0 {
		t.at = t.now()
	}
	return n, err
}

// NewEventReader returns a reader of the events of r. now is called once after each read
// of r.
func NewEventReader(r io.Reader, now func() time.Time) *EventReader {
	e := &EventReader{buf: make([]byte, 4096)}
	e.split = e.splitLine
	e.Reset(r, now)
	return e
}

// Reset starts on another stream and keeps the buffers.
func (e *EventReader) Reset(r io.Reader, now func() time.Time) {
	e.from = timed{Reader: r, now: now}
	e.skipLF, e.started = false, false
	e.lines = *bufio.NewScanner(&e.from)
	e.lines.Buffer(e.buf, MaxEventBytes)
	e.lines.Split(e.split)
}

// Next returns the next event, which is valid until the next call. At the end of the
// stream it returns io.EOF. Other errors are those of the stream, [ErrEventTooLong], and
// io.ErrNoProgress.
func (e *EventReader) Next() (Event, error) {
	e.data, e.hasData = e.data[:0], false
	for e.lines.Scan() {
		line := e.lines.Bytes()
		if !e.started {
			e.started, line = true, bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if len(line) == 0 && e.hasData {
			return Event{Data: e.data, At: e.from.at}, nil
		}
		field, value, _ := bytes.Cut(line, []byte{':'})
		if string(field) != "data" {
			continue
		}
		value = bytes.TrimPrefix(value, []byte{' '})
		if len(e.data)+len(value) >= MaxEventBytes {
			return Event{}, ErrEventTooLong
		}
		if e.hasData {
			e.data = append(e.data, '\n')
		}
		e.data, e.hasData = append(e.data, value...), true
	}
	switch err := e.lines.Err(); err {
	case nil:
		return Event{}, io.EOF
	case bufio.ErrTooLong:
		return Event{}, ErrEventTooLong
	default:
		return Event{}, err
	}
}

// splitLine is a [bufio.SplitFunc]. It does not wait for an LF after a CR, and drops a line without an
// end.
func (e *EventReader) splitLine(data []byte, _ bool) (advance int, line []byte, _ error) {
	if e.skipLF && len(data) > 0 {
		e.skipLF = false
		if data[0] == '\n' {
			advance, data = 1, data[1:]
		}
	}
	end := lineEnd(data)
	if end < 0 {
		return advance, nil, nil
	}
	e.skipLF = data[end] == '\r'
	return advance + end + 1, data[:end], nil
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
