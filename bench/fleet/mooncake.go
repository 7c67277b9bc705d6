package fleet

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/bench"
)

// maxID is above all ids of a recorded trace.
const maxID = 1 << 32

// Recording is a recorded trace.
type Recording struct {
	name string
	rows []bench.MooncakeRequest
}

// OpenMooncake reads a recorded trace of the Mooncake project from a file; its name
// is the file's without the ending. Errors are those of bench.OpenMooncakeRequests.
func OpenMooncake(path string) (*Recording, error) {
	rows, err := bench.OpenMooncakeRequests(path)
	if err != nil {
		return nil, fmt.Errorf("%w; the generated traces are %s", err, strings.Join(Generated(), ", "))
	}
	return &Recording{strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)), rows}, nil
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
			a.prompt = append(a.prompt, segment{salt | uint64(id), 0, min(bench.MooncakeBlock, row.Prompt-k*bench.MooncakeBlock)})
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
		hi, now := lo, r.rows[lo].Millis
		for hi < len(r.rows) && r.rows[hi].Millis == now {
			hi++
		}
		width := 0.0
		if hi < len(r.rows) {
			width = float64(r.rows[hi].Millis - now)
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
