package cuda

import (
	"encoding/binary"
	"errors"
	"math/bits"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
)

// sizes has the numbers of tokens, rows with logits and attention work items that a step's data has
// room for and its kernels are launched for.
type sizes struct{ tokens, want, splits int }

// Offsets of the actual counts at the start of a step's data. A graph launches its kernels for the
// numbers in sizes, and the kernels read from here how many there are. Each of attention's two
// counts is followed by the highest number of splits of a token.
const (
	liveTokens = 4 * iota // of the step
	liveWant              // rows with logits
	liveRows
	liveTables   // entries of page tables that the graph writes
	liveDecoding // tokens that decode
	_
	liveSplits // work items
	_
	liveEnd
	liveCounts = liveEnd / 4
)

// live writes the actual counts at the start of p.data.
func (p *planner) live() {
	put := func(at, n int) { binary.LittleEndian.PutUint32(p.data[at:], uint32(n)) }
	put(liveTokens, p.tokens)
	put(liveWant, p.want.n)
	put(liveRows, p.rows)
	if !p.tablesFirst {
		put(liveTables, p.tables.n)
	}
	for at, n := range map[int]int{liveDecoding: p.decoding, liveSplits: p.splits.n} {
		put(at, n)
		put(at+4, p.maxSplits)
	}
}

// size sets *to and returns it. Without a graph it is n. With a graph and n above 0 it is the
// smallest power of two that is at least n, limited to [least, most].
func (p *planner) size(to *int, n, least, most int) int {
	if *to = n; p.graph && n > 0 {
		*to = min(max(least, 1<<bits.Len(uint(n-1))), most)
	}
	return *to
}

// shape identifies a graph.
type shape struct {
	sizes
	top int // as in logitLists
}

// maxGraphs is the number of cached graphs. When one more is needed, all are dropped.
const maxGraphs = 64

// graphs caches the graphs of decode steps, by shape. A graph contains the address of the step's data,
// so it is destroyed when that is reallocated.
type graphs struct {
	execs    map[shape]cudrv.GraphExec
	off      bool // kernels are launched one by one
	failures int  // since the last graph that was made
	rest     int  // steps for which no graph is tried
}

// firstRest is the number of steps after a failure for which no graph is tried. It doubles with each
// failure in a row, up to 2^10 times. An attempt costs about as much as a step.
const firstRest = 8

// fit reports whether the batch can run as a graph: all rows decode, and at least one has logits.
func (g *graphs) fit(b *engine.Batch) bool {
	want := false
	for i := range b.Rows {
		r := &b.Rows[i]
		if r.Len() != 1 || r.PromptLogprobs {
			return false
		}
		want = want || r.Sample || r.Digest
	}
	if g.rest > 0 && want {
		g.rest--
		return false
	}
	return want && !g.off
}

// dropGraphs destroys all graphs. Graphs that are running complete.
func (d *device) dropGraphs() error {
	var err error
	for _, x := range d.graphs.execs {
		err = errors.Join(err, d.ctx.DestroyGraphExec(x))
	}
	clear(d.graphs.execs)
	return err
}

// graph queues the step as a graph, which it first captures if there is none for the step's shape.
// It returns false if the driver can't make graphs: the caller must then launch the kernels one by
// one. It returns true otherwise; if the device is lost or the launch fails, the error is in
// l.err.
func (l *launcher) graph() bool {
	key := shape{l.p.sizes, l.p.top}
	x, ok := l.graphs.execs[key]
	if !ok {
		var err error
		if x, err = l.capture(); err != nil {
			if errors.Is(err, cudrv.ErrLost) {
				l.err = err
				return true
			}
			g := &l.graphs // unsupported, or no memory for it
			g.rest = firstRest << min(g.failures, 10)
			g.failures++
			l.p.stats.GraphFailures = 1
			l.cfg.Log.Warn("no graph of a step's kernels: they are launched one by one", "steps", g.rest, "error", err)
			return false
		}
		l.graphs.failures = 0
		if len(l.graphs.execs) == maxGraphs {
			l.err = l.dropGraphs()
		}
		l.graphs.execs[key] = x
	}
	if l.err == nil {
		l.err = l.ctx.LaunchGraph(x, l.stream)
	}
	return true
}

// capture makes a graph of the step's kernels, ready to launch.
func (l *launcher) capture() (cudrv.GraphExec, error) {
	if err := l.ctx.BeginCapture(l.stream); err != nil {
		return 0, err
	}
	l.kernels(nil)
	failed := l.err
	l.err = nil
	g, err := l.ctx.EndCapture(l.stream)
	if err != nil || failed != nil {
		if err == nil {
			err = l.ctx.DestroyGraph(g)
		}
		return 0, errors.Join(failed, err)
	}
	x, err := l.ctx.Instantiate(g)
	if err != nil {
		return 0, errors.Join(err, l.ctx.DestroyGraph(g))
	}
	return x, l.ctx.DestroyGraph(g)
}
