package load

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/internal/enum"
)

// TraceFormat is the format of a recorded trace. All have a JSON object in each line.
type TraceFormat uint8

const (
	AnyFormat TraceFormat = iota // found by the first line
	Mooncake                     // a request a line, see mooncakeTrace
	AgentX                       // a session a line, see agentTrace
	Messages                     // a request with its messages a line, see conversations
)

var traceFormats = enum.New[TraceFormat]("load", "trace format", "auto", "mooncake", "agentx", "messages")

// String returns the name in lower case.
func (f TraceFormat) String() string { return traceFormats.Name(f) }

// UnmarshalText accepts the names that String returns.
func (f *TraceFormat) UnmarshalText(text []byte) error { return traceFormats.Read(f, text) }

// Timed reports whether requests have times from the beginning of the trace, for Config.Timed. The
// other formats have the pauses within sessions, for a closed loop.
func (f TraceFormat) Timed() bool { return f == Mooncake }

// FormatOf returns the format of the trace in a file, by the names of the fields in its first
// object: hash_ids, requests or messages.
func FormatOf(path string) (TraceFormat, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("load: opening a trace: %w; --file takes the path of a JSONL file", err)
	}
	defer f.Close()
	format, err := formatOf(bufio.NewReader(f))
	if err != nil {
		return 0, fmt.Errorf("load: %s: %w", path, err)
	}
	return format, nil
}

func formatOf(r io.Reader) (TraceFormat, error) {
	d := json.NewDecoder(r)
	if begin, err := d.Token(); err == io.EOF {
		return 0, errors.New("the file is empty, want a JSON object in each line")
	} else if begin != json.Delim('{') || err != nil {
		return 0, errors.New("line 1: want a JSON object")
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return 0, fmt.Errorf("line 1: %w", err)
		}
		switch key {
		case "hash_ids", "input_length":
			return Mooncake, nil
		case "requests", "block_size":
			return AgentX, nil
		case "messages":
			return Messages, nil
		}
		var skipped json.RawMessage
		if err := d.Decode(&skipped); err != nil {
			return 0, fmt.Errorf("line 1: %v: %w", key, err)
		}
	}
	return 0, errors.New("line 1: no trace that is known: want hash_ids (mooncake), requests (agentx) or messages (messages)")
}

// Recording is a data set of a trace in one of the formats.
type Recording interface {
	Dataset
	// Total returns the number of requests of all sessions.
	Total() int
}

// OpenTrace reads a trace from a file. Errors are those of the file and of its format; they name the
// line and the field.
func OpenTrace(path string, format TraceFormat, cfg TraceConfig) (Recording, error) {
	cfg, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	if format == AnyFormat {
		if format, err = FormatOf(path); err != nil {
			return nil, err
		}
	}
	name := filepath.Base(path)
	switch format {
	case AgentX:
		t, err := openFile(path, "a trace", func(r io.Reader) (*agentTrace, error) { return readAgentTrace(r, cfg) })
		if err != nil {
			return nil, err
		}
		t.name = name
		return t, nil
	case Messages:
		c, err := openFile(path, "a trace", func(r io.Reader) (*conversations, error) { return readConversations(r, cfg) })
		if err != nil {
			return nil, err
		}
		c.name = name
		return c, nil
	}
	t, err := openFile(path, "a trace", func(r io.Reader) (*mooncakeTrace, error) { return readTrace(r, cfg) })
	if err != nil {
		return nil, err
	}
	return t, nil
}

// checked returns a copy with defaults, or an error that reports the fields out of range.
func (c TraceConfig) checked() (TraceConfig, error) {
	c = bounds.Fill(c)
	if !(c.Speedup > 0) {
		return c, fmt.Errorf("load: Speedup is %v, want more than 0", c.Speedup)
	}
	return c, bounds.Check("load", c)
}

// pause returns a recorded pause of this many seconds as it is played.
func (c *TraceConfig) pause(seconds float64) time.Duration {
	d := time.Duration(min(seconds, MaxTraceSpan.Seconds()) / c.Speedup * 1e9)
	if c.MaxThink > 0 {
		d = min(d, c.MaxThink)
	}
	return d
}
