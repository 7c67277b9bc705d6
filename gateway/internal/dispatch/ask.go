package dispatch

import (
	"errors"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/gateway/internal/global"
	"github.com/coppice-llm/coppice/gateway/internal/residency"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/kvindex"
	"github.com/coppice-llm/coppice/tokenizer/textcache"
)

// Ask is a request in the form that the dispatcher needs. Its memory is reused.
type Ask struct {
	Request router.Request
	Exact   bool         // the hashes match those in workers' events
	Query   global.Query // input for the choice of a pool by a grid
	Asked   int          // workers asked in the current pool; the caller counts them
	Left    []string     // names of the pools that the request has left for another
	Seen    Seen         // with Config.Record, valid after Choose

	hashes   kvindex.TokensWithHashes
	known    []router.Overlap
	guessed  []kvindex.Overlap
	overlaps []router.Overlap
	stage    stage
	outdated bool // the index of the chosen rank is no longer kept current
}

// Reset clears the request and keeps the memory.
func (a *Ask) Reset() {
	a.hashes.Reset(nil, kv.Namespace{})
	a.Request = router.Request{Avoid: a.Request.Avoid[:0]}
	a.Exact, a.outdated, a.Asked, a.Query, a.Left = false, false, 0, global.Query{}, a.Left[:0]
	a.stage = stage{ids: a.stage.ids[:0]}
}

// SetPrompt sets Request.Hashes to the hashes of the prompt's full blocks of blockTokens tokens,
// in namespace ns. Blocks within the first public tokens are hashed without the namespace's
// salt. known, unless nil, has the hashes of the first of these blocks, or of no blocks.
func (a *Ask) SetPrompt(tokens []kv.Token, ns kv.Namespace, public, blockTokens int, known *textcache.Blocks) {
	a.hashes.Reset(tokens, ns)
	a.hashes.SetPublic(public)
	if known != nil {
		a.hashes.Take(blockTokens, known.Locals, known.Hashes)
	}
	a.Request.Hashes = a.hashes.Hashes(blockTokens)
}

// stage is the list of pools that a request may go to, preferred first, and the current pool.
// With an empty list the request may go to all workers.
type stage struct {
	pools *Partition
	ids   []router.PoolID
	at    int    // index of the current pool in ids
	why   string // reason of the choice, for Explain
}

// ModelID returns the router's number for a model, 0 for "".
func ModelID(name string) router.ModelID {
	if name == "" {
		return 0
	}
	return router.ModelID(max(1, xxh3.HashString(name)))
}

// lookUp sets a.known to the workers that hold leading blocks of the prompt, by the index of
// workers' events. It needs no lock.
func (a *Ask) lookUp(index *residency.Residency, blockTokens int) {
	a.known = a.known[:0]
	if a.Exact {
		a.known = index.Find(a.hashes.Hashes(blockTokens), a.known)
	}
}

// merge sets the request's overlaps: those of a.known, extended where a guess says that the
// worker has more blocks.
func (a *Ask) merge() {
	a.overlaps = append(a.overlaps[:0], a.known...)
	if len(a.guessed) > 0 {
		a.mergeGuesses()
	}
	a.Request.Overlaps = a.overlaps
}

// mergeGuesses merges a.guessed into a.overlaps, after sorting both by worker.
func (a *Ask) mergeGuesses() {
	slices.SortFunc(a.overlaps, func(x, y router.Overlap) int { return x.Worker.Compare(y.Worker) })
	slices.SortFunc(a.guessed, func(x, y kvindex.Overlap) int { return x.Holder.Compare(y.Holder) })
	i, known := 0, len(a.overlaps)
	for _, g := range a.guessed {
		w := g.Holder
		for i < known && a.overlaps[i].Worker.Compare(w) < 0 {
			i++
		}
		if i == known || a.overlaps[i].Worker != w {
			a.overlaps = append(a.overlaps, router.Overlap{Worker: w, Device: int(g.Blocks)})
		} else if o := &a.overlaps[i]; int(g.Blocks) > o.Blocks() {
			o.Device += int(g.Blocks) - o.Blocks()
		}
	}
}

// ErrPatience is the error of Choose for a request that has waited for all of its patience.
var ErrPatience = errors.New("gateway: all workers were busy for the whole time that a request may wait")

// nextPool moves the request to its next pool after the choice in the current pool has failed
// with err. It returns false, and moves nothing, if there is no further pool or if err does not
// allow to move. If the current pool is a busy bucket, the request stays there, because the
// bucket holds the prompt's blocks.
func (a *Ask) nextPool(err error) bool {
	s := &a.stage
	if s.at+1 >= len(s.ids) {
		return false
	}
	busy := errors.Is(err, ErrPatience) || errors.As(err, new(*router.QueueFullError))
	if !errors.Is(err, router.ErrNoWorkers) && !(busy && s.pools.Grid()) {
		return false
	}
	a.leave(s.at + 1)
	return true
}

// leave moves the request from its current pool to the pool at this index of stage.ids.
func (a *Ask) leave(at int) {
	s := &a.stage
	a.Left = append(a.Left, s.pools.Name(s.ids[s.at]))
	s.at, a.Asked, a.Request.Pool = at, 0, s.ids[at]
}
