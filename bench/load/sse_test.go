package load

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// plainEvents applies the standard's algorithm to the whole text at once.
func plainEvents(text string) []string {
	text = strings.TrimPrefix(text, "\ufeff")
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(text, "\n")
	var all, data []string
	for _, line := range lines[:len(lines)-1] { // the last line is not ended
		if line == "" {
			if data != nil {
				all = append(all, strings.Join(data, "\n"))
			}
			data = nil
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		if field == "data" {
			data = append(data, value)
		}
	}
	return all
}

func readEvents(r io.Reader) ([]string, error) {
	var all []string
	e := NewEventReader(r, func() time.Time { return time.Time{} })
	for {
		event, err := e.Next()
		if err != nil {
			return all, err
		}
		all = append(all, string(event.Data))
	}
}

func TestEvents(t *testing.T) {
	for _, tc := range []struct {
		text string
		want []string
	}{
		{"data: a\n\ndata: b\n\n", []string{"a", "b"}},
		{"data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}},
		{"data: a\r\ndata: b\r\nevent: x\r\n\r\n", []string{"a\nb"}},
		{"data: a\r\rdata: b\r\r", []string{"a", "b"}},
		{"data: a\ndata: b\ndata\ndata:  c\n\n", []string{"a\nb\n\n c"}},
		{": ping\n\n:\n\ndata:x\n: inside\ndata:y\n\n", []string{"x\ny"}},
		{"event: error\nid: 7\nretry: 10\ndata: {}\n\ndata: 1\n\n", []string{"{}", "1"}},
		{"event: lonely\n\ndata: 1\n\n", []string{"1"}},
		{"\ufeffdata: 1\n\n\ufeffdata: 2\n\n", []string{"1"}},
		{"data: whole\n\ndata: broken off\n", []string{"whole"}},
		{"data: [DONE]\n\n", []string{"[DONE]"}},
		{"data\n\n", []string{""}},
		{"", nil},
	} {
		if want := plainEvents(tc.text); !reflect.DeepEqual(want, tc.want) {
			t.Fatalf("the plain twin reads %q as %q, want %q", tc.text, want, tc.want)
		}
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(tc.text), "bytes": iotest.OneByteReader(strings.NewReader(tc.text)), "data with EOF": iotest.DataErrReader(strings.NewReader(tc.text))} {
			got, err := readEvents(r)
			if err != io.EOF || !reflect.DeepEqual(got, tc.want) {
				t.Errorf("%q by %s: %q, %v, want %q", tc.text, name, got, err, tc.want)
			}
		}
	}
}

// scripted returns one part for each read.
type scripted struct {
	parts []string
	err   error
}

func (s *scripted) Read(p []byte) (int, error) {
	if len(s.parts) == 0 {
		return 0, s.err
	}
	n := copy(p, s.parts[0])
	if s.parts[0] = s.parts[0][n:]; s.parts[0] == "" {
		s.parts = s.parts[1:]
	}
	return n, nil
}

func TestEventsHaveTheTimeOfTheirLastByte(t *testing.T) {
	reads := 0
	now := func() time.Time { reads++; return time.Unix(int64(reads), 0) }
	lost := errors.New("lost")
	e := NewEventReader(&scripted{[]string{"data: a\n\nda", "ta: b\n", "\ndata: c\n\ndata: d\n\n", "data: e\n"}, lost}, now)
	for _, want := range []struct {
		data string
		at   int64
	}{{"a", 1}, {"b", 3}, {"c", 3}, {"d", 3}} {
		event, err := e.Next()
		if err != nil || string(event.Data) != want.data || event.At.Unix() != want.at {
			t.Fatalf("%q at %d, %v, want %+v", event.Data, event.At.Unix(), err, want)
		}
	}
	for range 2 {
		if _, err := e.Next(); err != lost {
			t.Fatalf("ended with %v, want %v", err, lost)
		}
	}
}

// endless is a reader of one infinite line.
type endless struct{ begun bool }

func (e *endless) Read(p []byte) (int, error) {
	n := 0
	if !e.begun {
		e.begun = true
		n = copy(p, "data: ")
	}
	for i := n; i < len(p); i++ {
		p[i] = 'x'
	}
	return len(p), nil
}

type still struct{}

func (still) Read([]byte) (int, error) { return 0, nil }

func TestEventsAreBounded(t *testing.T) {
	if _, err := readEvents(&endless{}); !errors.Is(err, ErrEventTooLong) {
		t.Errorf("a line without an end: %v", err)
	}
	line := "data: " + strings.Repeat("x", 1<<20) + "\n"
	if _, err := readEvents(strings.NewReader(strings.Repeat(line, 17) + "\n")); !errors.Is(err, ErrEventTooLong) {
		t.Errorf("17 MiB in one event: %v", err)
	}
	if got, err := readEvents(strings.NewReader(strings.Repeat(line, 15) + "\n")); err != io.EOF || len(got) != 1 || len(got[0]) != 15<<20+14 {
		t.Errorf("15 MiB in one event: %d events, %v", len(got), err)
	}
	if _, err := readEvents(still{}); err != io.ErrNoProgress {
		t.Errorf("a reader that gives nothing: %v", err)
	}
}

func TestEventsDoNotAllocate(t *testing.T) {
	stream := []byte(strings.Repeat("data: "+completionChunk+"\n\n", 100))
	from := bytes.NewReader(stream)
	now := func() time.Time { return time.Time{} }
	e := NewEventReader(from, now)
	if n := testing.AllocsPerRun(20, func() {
		from.Reset(stream)
		e.Reset(from, now)
		for range 100 {
			if _, err := e.Next(); err != nil {
				t.Fatal(err)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations in 100 events, want none", n)
	}
}

func FuzzEvents(f *testing.F) {
	f.Add("data: a\r\ndata: b\r\n\r\ndata: c\n\n", uint8(3))
	f.Add("\ufeffevent: x\rdata\r\r: c\n\n", uint8(1))
	f.Fuzz(func(t *testing.T, text string, part uint8) {
		var parts []string
		for rest := text; rest != ""; {
			n := min(int(part)%17+1, len(rest))
			parts, rest = append(parts, rest[:n]), rest[n:]
		}
		got, err := readEvents(&scripted{parts, io.EOF})
		if want := plainEvents(text); err != io.EOF || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q in parts of %d: %q, %v, want %q", text, int(part)%17+1, got, err, want)
		}
	})
}
