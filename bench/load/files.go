package load

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// Prompts is a data set read from a file of prompts. Each is a session of one turn.
type Prompts struct {
	name  string
	turns []Turn
}

// OpenPrompts reads a file of one prompt a line. If its extension begins with .json,
// lines are JSON objects {"prompt": "...", "output_tokens": 100}, in which output_tokens
// is optional; otherwise they are plain text. outputTokens is the default. Errors name
// the line.
func OpenPrompts(path string, outputTokens int) (*Prompts, error) {
	asJSON := strings.HasPrefix(filepath.Ext(path), ".json")
	p, err := openFile(path, "prompts", func(r io.Reader) (*Prompts, error) { return readPrompts(r, asJSON, outputTokens) })
	if err == nil {
		p.name = filepath.Base(path)
	}
	return p, err
}

// openFile reads the file at path. what names its contents in errors.
func openFile[T any](path, what string, read func(io.Reader) (*T, error)) (*T, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("load: opening %s: %w", what, err)
	}
	defer f.Close()
	t, err := read(f)
	if err != nil {
		return nil, fmt.Errorf("load: %s: %w", path, err)
	}
	return t, nil
}

func readPrompts(r io.Reader, asJSON bool, outputTokens int) (*Prompts, error) {
	if outputTokens < 1 || outputTokens > MaxLength {
		return nil, fmt.Errorf("OutputTokens is %d, want 1 to %d", outputTokens, MaxLength)
	}
	p := &Prompts{}
	err := eachLine(r, maxLine, func(line []byte) error {
		t := Turn{OutputTokens: outputTokens}
		if asJSON {
			var e struct {
				Prompt       string `json:"prompt"`
				OutputTokens *int   `json:"output_tokens"`
			}
			if err := json.Unmarshal(line, &e); err != nil {
				return fmt.Errorf(`want {"prompt": "...", "output_tokens": 100}: %w`, err)
			}
			if e.Prompt == "" {
				return errors.New(`"prompt" is missing or empty`)
			}
			if e.OutputTokens != nil {
				t.OutputTokens = *e.OutputTokens
			}
			if t.OutputTokens < 1 || t.OutputTokens > MaxLength {
				return fmt.Errorf("output_tokens is %d, want 1 to %d", t.OutputTokens, MaxLength)
			}
			t.User.Text = e.Prompt
		} else {
			t.User.Text = string(bytes.TrimSuffix(line, []byte{'\r'}))
		}
		p.turns = append(p.turns, t)
		return nil
	})
	return p, err
}

func (p *Prompts) Sessions() int { return len(p.turns) }

func (p *Prompts) Requests() (fewest, most int) { return 1, 1 }

func (p *Prompts) String() string { return fmt.Sprintf("prompts: %d of %s", len(p.turns), p.name) }

func (p *Prompts) Session(i int) Session { return Session{Turns: p.turns[i : i+1]} }

// TraceBlock is the number of tokens that a hash id of a trace stands for.
const TraceBlock = 512

// Limits of a trace and of a file of prompts; maxLine is in bytes.
const (
	MaxTraceSpan = 10 * 365 * 24 * time.Hour
	maxLine      = 16 << 20
)

// TraceConfig holds the options for playing a recorded trace.
type TraceConfig struct {
	Vocabulary
	Speedup float64 `default:"1"` // divides all times. Default 1
	// Scale divides all lengths, for small models: a block of n tokens has n/Scale. A power of two,
	// at most the length of a block. Default 1.
	Scale int `default:"1" min:"1" max:"512" pow2:""`
	Seed  uint64

	// The following fields are for sessions: agentTrace and conversations.

	MaxThink     time.Duration `min:"0s"`                          // longest pause, after Speedup. 0: no limit
	InputTokens  int           `min:"0" max:"1<<24"`               // agentTrace leaves out longer prompts, before Scale. 0: no limit
	OutputTokens int           `default:"128" min:"1" max:"1<<24"` // of an answer without a length
}

// mooncakeTrace is a data set of a recorded trace of the Mooncake project (JSON lines of
// timestamp in ms, input_length, output_length, hash_ids; its paper is arXiv
// 2407.00079). The served tokens are not in the file, so each hash id is expanded to its
// own block of random tokens: requests that shared a prefix still share one. Session
// makes the tokens; memory holds the ids only.
type mooncakeTrace struct {
	cfg     TraceConfig
	entries []traceEntry
}

type traceEntry struct {
	Timestamp    *float64 `json:"timestamp"` // ms
	InputLength  *int     `json:"input_length"`
	OutputLength *int     `json:"output_length"`
	HashIDs      []uint32 `json:"hash_ids"`
}

// readTrace reads a trace. An error names the line and the fault. A request recorded
// with no output tokens is sent for one token, the least that servers accept.
func readTrace(r io.Reader, cfg TraceConfig) (*mooncakeTrace, error) {
	t := &mooncakeTrace{cfg: cfg}
	last := 0.0
	err := eachLine(r, maxLine, func(line []byte) error {
		var e traceEntry
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("want a JSON object with timestamp, input_length, output_length and hash_ids: %w", err)
		}
		if err := e.validate(); err != nil {
			return err
		}
		if *e.Timestamp < last {
			return fmt.Errorf("timestamp %v comes after %v: sort the lines by time", *e.Timestamp, last)
		}
		last = *e.Timestamp
		t.entries = append(t.entries, e)
		return nil
	})
	return t, err
}

// validate returns the first fault of a line.
func (e *traceEntry) validate() error {
	switch {
	case e.Timestamp == nil || e.InputLength == nil || e.OutputLength == nil:
		return errors.New("want timestamp, input_length and output_length, one is missing")
	case !(*e.Timestamp >= 0 && *e.Timestamp <= float64(MaxTraceSpan/time.Millisecond)):
		return fmt.Errorf("timestamp is %v, want 0 to %d ms", *e.Timestamp, MaxTraceSpan/time.Millisecond)
	case *e.InputLength < 1 || *e.InputLength > MaxLength:
		return fmt.Errorf("input_length is %d, want 1 to %d", *e.InputLength, MaxLength)
	case *e.OutputLength < 0 || *e.OutputLength > MaxLength:
		return fmt.Errorf("output_length is %d, want 0 to %d", *e.OutputLength, MaxLength)
	case len(e.HashIDs) != kv.CeilPages(*e.InputLength, TraceBlock):
		return fmt.Errorf("%d hash_ids for input_length %d, want %d, one for each %d tokens", len(e.HashIDs), *e.InputLength, kv.CeilPages(*e.InputLength, TraceBlock), TraceBlock)
	}
	return nil
}

func (t *mooncakeTrace) Sessions() int { return len(t.entries) }

func (t *mooncakeTrace) Requests() (fewest, most int) { return 1, 1 }

// Total returns the number of requests.
func (t *mooncakeTrace) Total() int { return len(t.entries) }

func (t *mooncakeTrace) String() string {
	return fmt.Sprintf("trace: %d requests, speedup %g, scale 1/%d, of %v", len(t.entries), t.cfg.Speedup, t.cfg.Scale, t.cfg.Vocabulary)
}

func (t *mooncakeTrace) Session(i int) Session {
	e := &t.entries[i]
	block, left := TraceBlock/t.cfg.Scale, kv.CeilPages(*e.InputLength, t.cfg.Scale)
	var s Segment
	for _, id := range e.HashIDs {
		n := min(block, left)
		t.cfg.extend(&s, rand.New(rand.NewPCG(t.cfg.Seed, blockStream+uint64(id))), n)
		left -= n
	}
	return Session{
		At:    time.Duration(*e.Timestamp / t.cfg.Speedup * 1e6),
		Turns: []Turn{{User: s, OutputTokens: max(1, kv.CeilPages(*e.OutputLength, t.cfg.Scale))}},
	}
}

// eachLine calls f with each line of r that is not blank; lines have at most this many bytes. It
// stops at an error of f. Errors name the line. If r has no such line, that is an error too.
func eachLine(r io.Reader, most int, f func([]byte) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, most)
	n, filled := 0, false
	for lines.Scan() {
		n++
		line := lines.Bytes()
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		filled = true
		if err := f(line); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("line %d is longer than %d bytes", n+1, most)
	case err != nil:
		return fmt.Errorf("after line %d: %w", n, err)
	case !filled:
		return errors.New("the file is empty, want one request a line")
	}
	return nil
}
