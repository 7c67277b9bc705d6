package missratio

import (
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// Curve estimates the hit rate of caches of all sizes at once. One goroutine owns
// it. The package comment describes the method.
type Curve struct {
	cfg    config
	head   int // tokens per block in the first headOctaves octaves
	table  table
	line   line
	gains  gains
	refers []bool // scratch memory of compact

	take   rate   // decides which blocks are tracked from now on
	trust  rate   // decides which blocks are new if they are not in the table; at most take
	raised uint32 // index of the walk at which take rose; used while trust < take

	seen float64 // number of tokens looked up

	// Estimates of a run's end are cut to the possible range. These sums say by how many
	// tokens, so far, the runs after such ends were made too short.
	shortNew float64 // for runs that are new; below zero, too few tokens counted as hits
	shortOld float64 // for runs last touched by an older walk than the run before them
}

// New returns a curve that tracks at most samples blocks, MinSamples to MaxSamples. Begin must be its first call: the
// cache that the curve is given to makes it.
func New(samples int) *Curve { return &Curve{cfg: config{samples: samples}} }

// Begin makes c the empty curve of a cache with pages of pageTokens tokens, 1 to 1<<15. It allocates all memory that the
// curve will ever use. It fails if the number of samples is invalid, or if c is the curve of another cache.
func (c *Curve) Begin(pageTokens int) error {
	switch s := c.cfg.samples; {
	case c.refers != nil:
		return errors.New("missratio: the curve belongs to another cache")
	case s < MinSamples || s > MaxSamples:
		return fmt.Errorf("missratio: samples is %d, want %d to %d", s, MinSamples, MaxSamples)
	}
	*c = *newCurve(config{samples: c.cfg.samples, pageTokens: pageTokens})
	return nil
}

func newCurve(cfg config) *Curve {
	cfg = cfg.withDefaults()
	c := &Curve{
		cfg:    cfg,
		head:   cfg.headBlock(),
		table:  newTable(cfg.samples),
		line:   newLine(2 * cfg.samples),
		gains:  newGains(cfg.maxTokens),
		refers: make([]bool, 2*cfg.samples),
	}
	c.Reset()
	return c
}

// Reset forgets all requests.
func (c *Curve) Reset() {
	c.table.reset()
	c.line.reset()
	c.gains.reset()
	c.take.set(everything)
	c.trust.set(everything)
	c.seen, c.shortNew, c.shortOld = 0, 0, 0
}

// rate returns the share, in [0, 1], of the tokens of all requests so far that an LRU
// cache of capacityTokens would have held. A larger capacity never has a smaller rate.
// Capacities beyond maxTokens count as maxTokens. Before the first request the rate is
// 0. Cost: a pass over at most 5,000 buckets.
func (c *Curve) rate(capacityTokens int) float64 {
	if c.seen == 0 {
		return 0
	}
	hits := c.gains.hits(capacityTokens)
	// Hits for which no run was found are spread over the runs that were found.
	if all := c.gains.hits(c.cfg.maxTokens); c.shortNew < 0 && all > 0 {
		hits *= 1 - c.shortNew/all
	}
	return min(max(hits/c.seen, 0), 1)
}

// Rates returns dst with the hit rate in [0, 1] of each capacity, in tokens, appended.
func (c *Curve) Rates(capacities []int, dst []float64) []float64 {
	for _, capacity := range capacities {
		dst = append(dst, c.rate(capacity))
	}
	return dst
}

// Access counts one request. tokens is its whole sequence, prompt and output, from token
// 0 on; Access does not keep the slice. A request shorter than a block counts as missed.
// Cost: one hash of the tokens and a look-up for each sampled block; no allocations.
func (c *Curve) Access(ns kv.Namespace, tokens []kv.Token) {
	if len(tokens) == 0 {
		return
	}
	if c.line.full() {
		c.compact()
	}
	w := walker{c: c, now: c.line.append(walk{}), size: c.wholePages(len(tokens)), block: c.head}
	hash, at := rootHash(ns), 0
	for octave := 0; at+w.block <= len(tokens); octave++ {
		if octave == headOctaves {
			if w.block = c.cfg.blockTokens; at+w.block > len(tokens) {
				break
			}
		}
		block := w.block
		for last := min(len(tokens), c.cfg.blockTokens*(2<<octave-1)); at+block <= last; at += block {
			rest := tokens[at : at+block]
			if w.open && w.end-at < block && w.end > at {
				w.tryEnd(chain(rest[:w.end-at], hash))
			}
			hash = chain(rest, hash)
			if w.open && w.end == at+block {
				w.tryEnd(hash)
			}
			if hash <= c.take.limit[octave] {
				w.probe(hash, octave, at+block)
			}
		}
	}
	rest := tokens[at:]
	if w.open && w.end-at <= len(rest) && w.end > at {
		w.tryEnd(chain(rest[:w.end-at], hash))
	}
	if len(rest) > 0 {
		hash = chain(rest, hash)
	}
	w.finish(at)
	c.line.walks[w.now] = walk{len(tokens), hash}
	c.seen += float64(len(tokens))
}

// wholePages rounds a number of tokens down to whole pages.
func (c *Curve) wholePages(tokens int) int { return tokens - tokens%c.cfg.pageTokens }

// rootHash hashes a namespace: each field with the hash of the one before as its seed,
// so that ("bc", "a") and ("c", "ab") differ.
func rootHash(ns kv.Namespace) uint64 {
	if ns == (kv.Namespace{}) {
		return 0
	}
	return xxh3.HashStringSeed(ns.Salt, xxh3.HashStringSeed(ns.LoRA, xxh3.HashStringSeed(ns.Model, 1)))
}

// chain hashes a run of tokens together with the hash of the tokens before it. It reads
// tokens in the machine's byte order, so hashes differ between machines of different
// order; they only select and name blocks within one Curve and never leave it.
func chain(tokens []kv.Token, before uint64) uint64 {
	if h := xxh3.HashSeed(wide.Bytes(tokens), before); h != 0 {
		return h
	}
	return 1 // 0 is an empty place of the table
}
