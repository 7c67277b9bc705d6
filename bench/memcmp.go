package bench

import (
	"bytes"
	"context"
	"fmt"
	"math"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// flatCopy is what a tree's matches are held against: the same tokens are
// compared by bytes.Equal, with nothing to search.
//
// It is to be as cold as the tree, no more and no less. So one side of each
// comparison is the very memory that Match reads, the trace's requests; a copy
// of them end to end would be warmer, as what is fetched ahead at the end of one
// is then the beginning of the next. The other side holds each cached token
// once, as the tree does: one flat buffer of all tokens in the order in which
// they were inserted. (A copy of each matched prefix in one piece would be many
// times larger than the tree, and colder.) The matched prefix of a request is
// then a few runs of the buffer. Between two comparisons the request's new
// tokens are copied into the buffer, as Insert copies them into the tree, so that
// they are as fresh when the next request comes. Requests go by in the same
// order, each once per pass.
type flatCopy struct {
	pageBytes int
	trace     *Trace
	buffer    []byte // every token that some Insert brought in, page after page, 4 bytes a token
	steps     []flatStep
	runs      []flatRun // of all steps, in order
}

// flatStep is one request.
type flatStep struct {
	matched int // bytes from its start, which are in the buffer
	whole   int // bytes in whole pages; [matched, whole) is new
	runs    int // pieces of the buffer that make up matched
}

// flatRun is a piece [lo, hi) of the buffer, in bytes.
type flatRun struct{ lo, hi int }

// layOut replays the trace and writes down what each match was made of: page
// ids say where in the buffer a page's tokens are.
func (p *radixPlay) layOut() (*flatCopy, error) {
	page := p.cfg.cache().PageTokens
	f := &flatCopy{
		pageBytes: 4 * page, trace: p.trace, steps: make([]flatStep, 0, p.trace.Requests()),
	}
	var places []int32 // by page id: which page of the buffer it is now
	filled := 0        // bytes of the buffer
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

// addRuns joins pages that lie side by side in the buffer.
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

// compare goes through all requests once and times the comparisons. It also
// finds out whether the tree told the truth: an unequal run is an error, since
// then a page that was matched holds other tokens than the request.
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
