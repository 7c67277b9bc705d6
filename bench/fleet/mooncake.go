package fleet

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/kv"
)

// ErrMooncake is wrapped by the errors that blame the bytes of a recorded trace.
var ErrMooncake = errors.New("fleet: bad Mooncake trace")

// mooncakeBlock is how many tokens an id of a Mooncake trace stands for.
const mooncakeBlock = 512

// Limits of a recorded trace.
const (
	maxLines        = 1 << 20
	maxPromptTokens = 1 << 20
	maxID           = 1 << 32
)

// Recording is a recorded trace.
type Recording struct {
	name string
	rows []recorded
}

// recorded is a line; see package bench, ReadMooncake, for the format.
type recorded struct {
	Timestamp *int64  `json:"timestamp"` // ms
	Input     int     `json:"input_length"`
	Output    int     `json:"output_length"`
	IDs       []int64 `json:"hash_ids"`
}

// OpenMooncake reads a recorded trace of the Mooncake project from a file; its name
// is the file's without the ending.
func OpenMooncake(path string) (*Recording, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("fleet: opening a Mooncake trace: %w; the generated ones are %s", err, strings.Join(Generated(), ", "))
	}
	r, err := parseMooncake(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r.name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	return r, nil
}

func parseMooncake(text []byte) (*Recording, error) {
	r := &Recording{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	for {
		var row recorded
		err := d.Decode(&row)
		if err == io.EOF {
			break
		}
		if err == nil {
			err = row.validate()
		}
		if err == nil && len(r.rows) > 0 && *row.Timestamp < *r.rows[len(r.rows)-1].Timestamp {
			err = fmt.Errorf("timestamp %d comes after a later one: sort the lines by time", *row.Timestamp)
		}
		if err == nil && len(r.rows) == maxLines {
			err = fmt.Errorf("more than %d requests", maxLines)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: request %d: %w", ErrMooncake, len(r.rows)+1, err)
		}
		r.rows = append(r.rows, row)
	}
	if len(r.rows) == 0 {
		return nil, fmt.Errorf("%w: no requests, want one JSON object a line", ErrMooncake)
	}
	return r, nil
}

func (r *recorded) validate() error {
	switch {
	case r.Timestamp == nil || *r.Timestamp < 0:
		return errors.New("timestamp is missing or negative")
	case r.Input < 1 || r.Input > maxPromptTokens:
		return fmt.Errorf("input_length is %d, want 1 to %d", r.Input, maxPromptTokens)
	case r.Output < 0 || r.Output > maxPromptTokens:
		return fmt.Errorf("output_length is %d, want 0 to %d", r.Output, maxPromptTokens)
	case len(r.IDs) != kv.CeilPages(r.Input, mooncakeBlock):
		return fmt.Errorf("%d hash_ids for input_length %d, want one for each %d tokens", len(r.IDs), r.Input, mooncakeBlock)
	}
	for _, id := range r.IDs {
		if id < 0 || id >= maxID {
			return fmt.Errorf("hash_id %d, want 0 to %d", id, maxID-1)
		}
	}
	return nil
}

// Requests is how many requests were recorded.
func (r *Recording) Requests() int { return len(r.rows) }

// Trace is the first requests of the recording, or all of it several times over:
// as many copies as it takes to have so many requests, side by side in time, each
// of which has tokens of its own. Within a copy requests keep their order and the
// shape of their arrivals; those of one timestamp are spread over the time to the
// next, as the recording is in steps of three seconds in parts. Outputs are at least
// a token.
func (r *Recording) Trace(requests int) (*Trace, error) {
	if requests < 1 || requests > MaxRequests {
		return nil, fmt.Errorf("fleet: a trace of %d requests, want 1 to %d", requests, MaxRequests)
	}
	copies := (requests + len(r.rows) - 1) / len(r.rows)
	each := (requests + copies - 1) / copies
	at := r.arrivals(each)
	t := &Trace{Name: r.name}
	for i := range requests {
		n, c := i/copies, i%copies
		row := &r.rows[n]
		salt := uint64(c+1) << 40
		a := ask{at: at[n]*float64(copies) + float64(c), after: -1, answer: segment{salt | maxID | uint64(n), 0, max(1, row.Output)}}
		for k, id := range row.IDs {
			a.prompt = append(a.prompt, segment{salt | uint64(id), 0, min(mooncakeBlock, row.Input-k*mooncakeBlock)})
		}
		t.asks = append(t.asks, a)
	}
	slices.SortStableFunc(t.asks, func(a, b ask) int { return cmp.Compare(a.at, b.at) })
	return t, nil
}

// arrivals of the first n requests, in mean gaps.
func (r *Recording) arrivals(n int) []float64 {
	at := make([]float64, n)
	for lo := 0; lo < n; {
		hi, now := lo, *r.rows[lo].Timestamp
		for hi < len(r.rows) && *r.rows[hi].Timestamp == now {
			hi++
		}
		width := 0.0
		if hi < len(r.rows) {
			width = float64(*r.rows[hi].Timestamp - now)
		}
		for i := lo; i < min(hi, n); i++ {
			at[i] = float64(now) + width*float64(i-lo)/float64(hi-lo)
		}
		lo = hi
	}
	first, span := at[0], at[n-1]-at[0]
	for i := range at {
		if span > 0 {
			at[i] = (at[i] - first) / span * float64(n-1)
		} else {
			at[i] = float64(i)
		}
	}
	return at
}
