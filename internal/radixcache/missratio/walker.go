package missratio

import (
	"math"
	"math/bits"

	"github.com/coppice-llm/coppice/kv"
)

// walker is the state of one Access. The request falls into runs, each last
// touched by one earlier walk, from the newest walk to older ones, then maybe
// a run that is new:
//
//	[0, a) walk 812   [a, b) walk 790   [b, size) new
//
// The walker meets sampled blocks, so it knows points of runs, and estimates
// where they end.
type walker struct {
	c     *Curve
	now   uint32 // this walk
	size  int    // tokens of the request, in whole pages
	block int    // tokens of the block at hand

	open   bool   // there is a run, [start, …) of walk
	fork   bool   // the walk has come to what is new; only sampling goes on
	walk   uint32 // of the open run
	start  int
	last   int  // the request shares at least the first last tokens with walk's
	end    int  // length of walk's request; 0 unknown
	ended  bool // the request shares all of it: the run ends at end, exactly
	missed bool // the request does not share all of it: the run ends before end
}

// tryEnd compares the hash of the first w.end tokens with that of walk's
// request. A conversation goes on where it ended, seldom at a block's edge, so
// this knows most forks to the token.
func (w *walker) tryEnd(hash uint64) {
	if w.fork || w.ended {
		return
	}
	if w.c.line.walks[w.walk].endHash == hash {
		w.last, w.ended = w.c.wholePages(w.end), true
	} else {
		w.missed = true
	}
}

// probe takes a sampled block, which ends at token end.
func (w *walker) probe(hash uint64, octave, end int) {
	c := w.c
	e := c.table.find(hash)
	if e.hash == 0 {
		if !w.fork && hash <= c.trust.limit[octave] {
			w.leave(end, c.take.share[octave])
		}
		*e = entry{hash, w.now, uint32(octave)}
		if c.table.n++; c.table.n > c.cfg.Samples {
			c.thin()
		}
		return
	}
	old := e.walk
	e.walk = w.now
	switch {
	case w.fork || old == w.now:
	case !w.open:
		w.begin(old, 0, end)
	case old == w.walk:
		w.last = max(w.last, end)
	default:
		at := w.boundary(end, c.take.share[octave], &c.owedOld)
		w.close(at)
		w.begin(old, at, end)
	}
}

func (w *walker) begin(walk uint32, start, last int) {
	w.open, w.walk, w.start, w.last = true, walk, start, last
	w.ended, w.missed = false, false
	w.end = w.c.line.walks[walk].end
}

// leave: the sampled block that ends at end is new.
func (w *walker) leave(end int, share float64) {
	w.fork = true
	if w.open {
		w.close(w.boundary(end, share, &w.c.owedNew))
	} else if share < 1 || end > w.block {
		// Nothing says what the tokens before would hit, so they count as new.
		w.c.owedNew += w.before(share) - float64(end)
	}
}

// before is how many tokens before its end the first sampled block of a run
// lets expect: sampled blocks are 1/share apart, and in the first block of a
// run half the tokens are still of the run before.
func (w *walker) before(share float64) float64 {
	return float64(w.block)/share - float64((w.block-w.c.cfg.PageTokens)/2)
}

// boundary estimates where the open run ends, given that the block ending at
// end, sampled at share, is the first known of the next run. What the estimate
// has to be cut by, to lie where it can, is added to owed and made up for by
// the next ones.
func (w *walker) boundary(end int, share float64, owed *float64) int {
	low, high := w.last, end-w.c.cfg.PageTokens
	if w.ended && low >= end-w.block {
		if share < 1 {
			*owed += w.before(share) - float64(end-low)
		}
		return min(low, high)
	}
	adjacent := share == 1 && low >= end-w.block
	if w.missed {
		high = min(high, w.c.wholePages(w.end-1))
	}
	switch {
	case high <= low:
		return low
	case adjacent:
		return (low + high) / 2
	}
	want := w.before(share)
	at := min(max(int(math.Round(float64(end)-want-*owed)), low), high)
	*owed += want - float64(end-at)
	return at
}

// finish ends the walk; whole is the end of its last whole block.
func (w *walker) finish(whole int) {
	c := w.c
	switch {
	case w.fork:
	case w.open:
		w.close(w.unforked(whole))
	case whole > 0:
		c.owedNew -= float64(w.size) // no sign of anything new, nor of anything else
	}
	c.line.add(w.now, w.size)
}

// unforked estimates where the last run ends if no sampled block was new.
func (w *walker) unforked(whole int) int {
	c, low, high := w.c, w.last, w.size
	if w.missed {
		high = min(high, c.wholePages(w.end-1))
	}
	blocks := max(whole/c.cfg.BlockTokens, 1)
	exact := c.take.share[bits.Len(uint(blocks))-1] == 1
	switch {
	case high <= low || w.ended && exact:
		return low
	case exact && low >= whole:
		return (low + high) / 2
	}
	at := min(max(int(math.Round(float64(w.size)-c.owedNew)), low), high)
	c.owedNew -= float64(w.size - at)
	return at
}

// close counts the open run as [start, at).
func (w *walker) close(at int) {
	n := at - w.start
	if n <= 0 {
		return
	}
	c, extra := w.c, 0
	if c.owedNew < 0 {
		// The run also stands for those like it of which no block is sampled, as
		// far as hits are lacking.
		block := c.cfg.BlockTokens
		seen := c.take.seen(w.start/block, kv.CeilPages(at, block), block/c.head)
		extra = int(min(-c.owedNew, float64(n)*(1/seen-1)))
		c.owedNew += float64(extra)
	}
	// Sums are noisy when few blocks are sampled, hence max. What this walk took
	// from newer walks so far is start tokens, nearer than the run.
	c.gains.add(max(c.line.after(w.walk), 0)+w.start, n, float64(n+extra)/float64(n))
	c.line.add(w.walk, -n-extra)
}
