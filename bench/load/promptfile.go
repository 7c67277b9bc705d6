package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
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
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("load: opening prompts: %w", err)
	}
	defer f.Close()
	asJSON := strings.HasPrefix(filepath.Ext(path), ".json")
	p, err := readPrompts(f, asJSON, outputTokens)
	if err != nil {
		return nil, fmt.Errorf("load: %s: %w", path, err)
	}
	p.name = filepath.Base(path)
	return p, nil
}

func readPrompts(r io.Reader, asJSON bool, outputTokens int) (*Prompts, error) {
	if outputTokens < 1 || outputTokens > MaxLength {
		return nil, fmt.Errorf("OutputTokens is %d, want 1 to %d", outputTokens, MaxLength)
	}
	p := &Prompts{}
	err := eachLine(r, func(line []byte) error {
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

func (p *Prompts) Sessions() int  { return len(p.turns) }
func (p *Prompts) Turns() int     { return 1 }
func (p *Prompts) String() string { return fmt.Sprintf("prompts: %d of %s", len(p.turns), p.name) }

func (p *Prompts) Session(i int) Session { return Session{Turns: p.turns[i : i+1]} }
