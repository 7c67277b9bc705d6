package bench

import (
	"bytes"
	"context"
	"fmt"
	"math"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// flatCopy is the baseline for Match: the same tokens are compared by bytes.Equal,
// with nothing to search.
//
// The memory of the copy should be as cold in the CPU caches as the tree's, not colder or warmer:
//
//   - One side of each comparison is the memory that Match reads, the trace's requests.
//     A copy of them end to end would be warmer: the hardware prefetches past the end
//     of one request, which would be the beginning of the next.
//   - The other side holds each cached token once, as the tree does: one flat buffer of
//     all tokens in order of insertion, so that a matched prefix is a few runs of the
//     buffer. A contiguous copy of each matched prefix would be many times larger than
//     the tree, hence colder.
//   - Between two comparisons the request's new tokens are copied into the buffer, as
//     Insert copies them into the tree, so they are as recently written when the next
//     request is compared.
//
// Requests are compared in the order of the trace, each once per pass.
type flatCopy struct {
	pageBytes int
	trace     *Trace
	buffer    []byte // all inserted tokens in order of insertion, in whole pages, 4 bytes a token
	steps     []flatStep
	runs      []flatRun // runs of all steps, in order
}

// flatStep is one request.
type flatStep struct {
	matched int // bytes from the start of the request that were matched
	whole   int // bytes in whole pages; [matched, whole) was inserted
	runs    int // number of flatRuns that hold the matched bytes
}

// flatRun is a piece [lo, hi) of the buffer, in bytes.
type flatRun struct{ lo, hi int }

// layOut replays the trace and records, for each match, where in the buffer the tokens of the
// matched pages are. It panics if the replay matches other lengths than the first replay did
// (radixPlay.count).
func (p *radixPlay) layOut() (*flatCopy, error) {
	page := p.cfg.cache().PageTokens
	f := &flatCopy{
		pageBytes: 4 * page, trace: p.trace, steps: make([]flatStep, 0, p.trace.Requests()),
	}
	var places []int32 // by page id: the page of the buffer with its tokens; changes when an id is reused
	filled := 0        // bytes of the buffer used so far
	r, err := p.replay(p.cfg, func(i int, r *replayer) {
		step := flatStep{matched: r.held * f.pageBytes, whole: len(r.pages) * f.pageBytes}
		step.runs = f.addRuns(r.pages[:r.held], places)
		f.steps = append(f.steps, step)
		for _, id := range r.pages[r.held:] {
			for int(id) >= len(places) {
				places = append(places, math.MaxInt32)
			}
			places[id] = int32(filled / f.pageBytes)
			filled += f.pageBytes
		}
	})
	if err != nil {
		return nil, err
	}
	if r.fnv != p.fnv {
		panic(fmt.Sprintf("bench: replays of one trace differ: FNV %016x, then %016x", p.fnv, r.fnv))
	}
	f.buffer = make([]byte, filled)
	return f, nil
}

// addRuns appends the runs of the buffer that hold these pages to f.runs. places maps a page id to
// the page's place in the buffer. Adjacent runs are joined. It returns the number of runs
// appended.
func (f *flatCopy) addRuns(pages []kv.PageID, places []int32) int {
	first := len(f.runs)
	for _, id := range pages {
		lo := int(places[id]) * f.pageBytes
		if last := len(f.runs) - 1; last >= first && f.runs[last].hi == lo {
			f.runs[last].hi += f.pageBytes
		} else {
			f.runs = append(f.runs, flatRun{lo, lo + f.pageBytes})
		}
	}
	return len(f.runs) - first
}

// compare compares the matched tokens of all requests with the buffer once, and times the
// comparisons. This also verifies the tree: if a run differs, a matched page holds other tokens
// than the request, and compare returns an error. It also fails if ctx ends.
func (f *flatCopy) compare(ctx context.Context) (w stopwatch, err error) {
	runs, filled := f.runs, 0
	for i, step := range f.steps {
		if i%64 == 0 && ctx.Err() != nil {
			return w, context.Cause(ctx)
		}
		request := wide.Bytes(f.trace.requests[i])
		w.start()
		same, rest := true, request[:step.matched]
		for _, run := range runs[:step.runs] {
			n := run.hi - run.lo
			same = same && bytes.Equal(rest[:n], f.buffer[run.lo:run.hi])
			rest = rest[n:]
		}
		w.stop()
		if !same {
			return w, fmt.Errorf("bench: request %d: a page of its %d matched tokens holds other tokens", i, step.matched/4)
		}
		filled += copy(f.buffer[filled:], request[step.matched:step.whole])
		runs = runs[step.runs:]
	}
	return w, nil
}
