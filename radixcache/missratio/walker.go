package missratio

import (
	"math"
	"math/bits"

	"github.com/coppice-llm/coppice/kv"
)

// walker is the state of one Access. The request consists of runs of tokens: each run was
// last touched by one earlier walk, and each next run by an older walk. The last run may be
// new, touched by no earlier walk:
//
//	[0, a) walk 812   [a, b) walk 790   [b, size) new
//
// The walker sees only sampled blocks, so it knows some points inside each run, and
// estimates where the run ends.
type walker struct {
	c     *Curve
	now   uint32 // index of this walk in the line
	size  int    // number of tokens of the request, in whole pages
	block int    // number of tokens in the current block

	open   bool   // a run has begun and not ended: the open run, which begins at start
	fork   bool   // the remaining tokens of the request are new
	walk   uint32 // index of the walk that touched the open run last
	start  int
	last   int  // lower bound on the tokens that the request shares with that walk's request
	end    int  // length of that walk's request; 0 if unknown
	ended  bool // the request begins with all of that request: the open run ends at end
	missed bool // the request does not begin with all of that request: the run ends before end
}

// tryEnd compares hash, that of the first w.end tokens, with the hash of the whole request of
// w.walk. A request often begins with a whole earlier request of the same conversation, which
// seldom ends at a block's edge; tryEnd finds the exact end of the run then.
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

// probe looks up a sampled block with a hash, in an octave, which ends at token end, and
// records that this walk touched the block last.
func (w *walker) probe(hash uint64, octave, end int) {
	c := w.c
	e := c.table.find(hash)
	if e.hash == 0 {
		if !w.fork && hash <= c.trust.limit[octave] {
			w.leave(end, c.take.share[octave])
		}
		*e = entry{hash, w.now, uint32(octave)}
		if c.table.n++; c.table.n > c.cfg.samples {
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
		at := w.boundary(end, c.take.share[octave], &c.shortOld)
		w.close(at)
		w.begin(old, at, end)
	}
}

// begin opens a run that walk touched last, which begins at token start and has at least the
// tokens up to last.
func (w *walker) begin(walk uint32, start, last int) {
	w.open, w.walk, w.start, w.last = true, walk, start, last
	w.ended, w.missed = false, false
	w.end = w.c.line.walks[walk].end
}

// leave ends the known part of the request: the sampled block that ends at token end is new.
// share is the fraction of blocks that is sampled there.
func (w *walker) leave(end int, share float64) {
	w.fork = true
	if w.open {
		w.close(w.boundary(end, share, &w.c.shortNew))
	} else if share < 1 || end > w.block {
		// No sample shows how the tokens before would hit, so they count as new.
		w.c.shortNew += w.before(share) - float64(end)
	}
}

// before returns the expected number of tokens of a run up to the end of its first sampled
// block. Sampled blocks are 1/share blocks apart, and in the first block of a run half of
// the block's tokens, less half a page, still belong to the run before. With blocks of 32,
// pages of 16 and a share of 1/4, the result is 128 - 8 = 120 tokens.
func (w *walker) before(share float64) float64 {
	return float64(w.block)/share - float64((w.block-w.c.cfg.pageTokens)/2)
}

// boundary estimates the token at which the open run ends, given that the block that ends at
// token end is the first sampled block of the next run; share is the fraction of blocks that
// is sampled there. It cuts the estimate to the possible range, adds the tokens that were cut
// to *short, and lets later estimates make up for them.
func (w *walker) boundary(end int, share float64, short *float64) int {
	low, high := w.last, end-w.c.cfg.pageTokens
	if w.ended && low >= end-w.block {
		if share < 1 {
			*short += w.before(share) - float64(end-low)
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
	at := min(max(int(math.Round(float64(end)-want-*short)), low), high)
	*short += want - float64(end-at)
	return at
}

// finish closes the open run and adds the request's tokens to the line. whole is the end of
// the last whole block, in tokens.
func (w *walker) finish(whole int) {
	c := w.c
	switch {
	case w.fork:
	case w.open:
		w.close(w.unforked(whole))
	case whole > 0:
		c.shortNew -= float64(w.size) // no sample was met, neither new nor old
	}
	c.line.add(w.now, w.size)
}

// unforked estimates the token at which the open run ends if no sampled block of the request
// was new. whole is the end of the last whole block.
func (w *walker) unforked(whole int) int {
	c, low, high := w.c, w.last, w.size
	if w.missed {
		high = min(high, c.wholePages(w.end-1))
	}
	blocks := max(whole/c.cfg.blockTokens, 1)
	exact := c.take.share[bits.Len(uint(blocks))-1] == 1
	switch {
	case high <= low || w.ended && exact:
		return low
	case exact && low >= whole:
		return (low + high) / 2
	}
	at := min(max(int(math.Round(float64(w.size)-c.shortNew)), low), high)
	c.shortNew -= float64(w.size - at)
	return at
}

// close counts the open run, whose tokens are [w.start, at), as hits.
func (w *walker) close(at int) {
	n := at - w.start
	if n <= 0 {
		return
	}
	c, extra := w.c, 0
	if c.shortNew < 0 {
		// The run also stands for similar runs of which no block is sampled, as far as hits
		// are missing.
		block := c.cfg.blockTokens
		seen := c.take.seen(w.start/block, kv.CeilPages(at, block), block/c.head)
		extra = int(min(-c.shortNew, float64(n)*(1/seen-1)))
		c.shortNew += float64(extra)
	}
	// Sums are noisy when few blocks are sampled, hence max. This walk took the first start
	// tokens from newer walks, so they are nearer than the run.
	c.gains.add(max(c.line.after(w.walk), 0)+w.start, n, float64(n+extra)/float64(n))
	c.line.add(w.walk, -n-extra)
}
