package fleet

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/bench"
)

// maxID is above all ids of a recorded trace. The numbers of the streams of answers have this
// bit set, so that they differ from those of prompts.
const maxID = 1 << 32

// Recording is a recorded trace.
type Recording struct {
	name string
	rows []bench.MooncakeRequest
}

// OpenMooncake reads a recorded trace of the Mooncake project from a file. Its name is
// that of the file without extension. Errors are those of bench.OpenMooncakeRequests.
func OpenMooncake(path string) (*Recording, error) {
	rows, err := bench.OpenMooncakeRequests(path)
	if err != nil {
		return nil, fmt.Errorf("%w; the generated traces are %s", err, strings.Join(Generated(), ", "))
	}
	return &Recording{strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)), rows}, nil
}

// Trace returns the first requests of the recording, as many as requests says (1 to MaxRequests;
// anything else is an error). If that is more than were recorded, it interleaves as many copies
// of the recording as needed. Each copy has its own tokens and shares no prefix with another.
// Within a copy requests keep their order and the pattern of their arrivals.
//
// Requests with the same timestamp are spread over the time to the next timestamp, because parts
// of the recordings have a resolution of three seconds. Outputs have at least one token.
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

// arrivals returns the times at which the first n requests arrive. The first time is 0, and the
// unit is the mean time between two of these arrivals.
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
