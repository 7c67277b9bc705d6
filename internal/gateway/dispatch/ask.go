package dispatch

import (
	"errors"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/internal/gateway/residency"
	"github.com/coppice-llm/coppice/internal/router/global"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// Ask is a request as the dispatcher sees it, in memory that is used again.
type Ask struct {
	Request router.Request
	Exact   bool         // the hashes are those of workers' events
	Query   global.Query // what a grid of pools chooses by
	Asked   int          // workers that were asked in the present pool; the caller counts
	Left    []string     // pools that the request has left for the next one

	hashes   kvindex.TokensWithHashes
	known    []residency.Overlap
	guessed  []kvindex.Overlap
	overlaps []router.Overlap
	stage    stage
}

// Reset forgets the request.
func (a *Ask) Reset() {
	a.hashes.Reset(nil, kv.Namespace{})
	a.Request = router.Request{Avoid: a.Request.Avoid[:0]}
	a.Exact, a.Asked, a.Query, a.Left = false, 0, global.Query{}, a.Left[:0]
	a.stage = stage{ids: a.stage.ids[:0]}
}

// SetPrompt hashes the blocks of a prompt, of which the first public tokens are not the
// namespace's own.
func (a *Ask) SetPrompt(tokens []kv.Token, ns kv.Namespace, public, blockTokens int) {
	a.hashes.Reset(tokens, ns)
	a.hashes.SetPublic(public)
	a.Request.Hashes = a.hashes.Hashes(blockTokens)
}

// stage is the pools that a request may go to, the chosen one first, and which of them it is
// at. Without any it may go to all workers.
type stage struct {
	pools *Pools
	ids   []router.PoolID
	at    int
	why   string // for Explain
}

// ModelID is the router's number for a model, 0 for none.
func ModelID(name string) router.ModelID {
	if name == "" {
		return 0
	}
	return router.ModelID(max(1, xxh3.HashString(name)))
}

// lookUp asks the index which workers hold leading blocks. It needs no lock.
func (a *Ask) lookUp(index *residency.Residency, blockTokens int) {
	a.known = a.known[:0]
	if a.Exact {
		a.known = index.Find(a.hashes.Locals(blockTokens), a.known)
	}
}

// merge sets the request's overlaps: what is known, and what is guessed beyond it.
func (a *Ask) merge() {
	a.overlaps = a.overlaps[:0]
	for i := range a.known {
		o := &a.known[i]
		a.overlaps = append(a.overlaps, router.Overlap{Worker: o.Holder, Device: o.Device, Host: o.Host, Disk: o.Disk, Shared: o.Shared, Object: o.Object})
	}
	if len(a.guessed) > 0 {
		a.mergeGuesses()
	}
	a.Request.Overlaps = a.overlaps
}

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

// ErrPatience refuses a request that has waited for as long as it may.
var ErrPatience = errors.New("gateway: all workers were busy for as long as a request may wait")

// nextPool moves on to the next pool after one that could not take the request for this
// reason, and reports whether there is one. A busy bucket is waited for, as it holds what the
// prompt needs.
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

// leave leaves the present pool for another one.
func (a *Ask) leave(at int) {
	s := &a.stage
	a.Left = append(a.Left, s.pools.Name(s.ids[s.at]))
	s.at, a.Asked, a.Request.Pool = at, 0, s.ids[at]
}
