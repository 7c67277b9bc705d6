package carrier

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/tiering"
)

// DefaultGrace is how long a store may be late with an ending that is due: stores end
// operations at their deadline themselves, so this one is for a store that is broken.
const DefaultGrace = time.Second

// Config is what a carrier is opened with. Backend, Layout, Stores and Buffers are needed.
type Config struct {
	// Backend must be an engine.Mover.
	Backend engine.Backend
	// Layout is that of the stores' extents.
	Layout mempool.Layout
	// Stores are those of the tiers below the device, one for a tier at most. A carrier
	// that opened owns and closes them.
	Stores []mempool.Store
	// Buffers is how many extents can be in flight: the sum of the tiers' MaxMoves. A move
	// that finds no buffer ends with mempool.ErrBusy.
	Buffers int
	// Start is the wall time at which the scheduler's clock stands at 0, from which
	// deadlines count.
	Start time.Time
	// Grace is how long after its deadline a move is given up whose store has not ended
	// it. Default DefaultGrace.
	Grace time.Duration
}

// Validate reports all that is wrong with c.
func (c *Config) Validate() error {
	errs := []error{c.Layout.Validate()}
	if _, ok := c.Backend.(engine.Mover); !ok {
		errs = append(errs, fmt.Errorf("carrier: the backend %T does not copy pages to host memory", c.Backend))
	} else if info := c.Backend.Info(); info.PageBytes != c.Layout.PageBytes || info.PageTokens != c.Layout.PageTokens {
		errs = append(errs, fmt.Errorf("carrier: pages of %d tokens and %d bytes, the backend %s has %d and %d",
			c.Layout.PageTokens, c.Layout.PageBytes, info.Name, info.PageTokens, info.PageBytes))
	}
	var seen [kv.Tiers]bool
	for _, s := range c.Stores {
		info := s.Info()
		switch t := info.Tier; {
		case t == kv.TierDevice || t >= kv.Tiers:
			errs = append(errs, fmt.Errorf("carrier: a store of tier %v", t))
		case seen[t]:
			errs = append(errs, fmt.Errorf("carrier: two stores of tier %v", t))
		case info.Identity.Layout != c.Layout:
			errs = append(errs, fmt.Errorf("carrier: the store of tier %v has layout %+v, want %+v", t, info.Identity.Layout, c.Layout))
		default:
			seen[t] = true
		}
	}
	if len(c.Stores) == 0 || c.Buffers < 1 || c.Grace < 0 {
		errs = append(errs, fmt.Errorf("carrier: %d Stores, Buffers %d, Grace %v, want at least 1, 1 and 0", len(c.Stores), c.Buffers, c.Grace))
	}
	return errors.Join(errs...)
}

// Ended is news of a move.
type Ended struct {
	ID tiering.MoveID
	// Copied says that the pages which a write reads on the device are copied: they may be
	// reused. The move goes on; all else of Ended is zero.
	Copied bool
	// Err is why the move failed, nil if it did what it was to do: after a Read without an
	// error the pages hold the KV.
	Err error
	// Took is the time of the stores' work, without that of waiting in queues and for the
	// device.
	Took time.Duration
	// Gone are extents that the store of tier GoneFrom has no longer, children first.
	Gone     []mempool.Key
	GoneFrom kv.Tier
}

// Carrier carries out moves. Its zero value is of no use.
type Carrier struct {
	cfg     Config
	mover   engine.Mover
	stores  [kv.Tiers]mempool.Store // nil: no such tier
	buffers []*buffer               // free ones
	kept    int                     // of all buffers, those in use

	moves  map[tiering.MoveID]*carry
	writes map[target]*carry // those of moves that are writes
	held   []*carry          // writes that wait until their parent's Put is submitted, in order of Begin
	lost   []*carry          // given up; their stores have not ended the operations
	ended  []Ended           // for the next Poll
	moved  []engine.Moved
	done   []mempool.Done
	probes map[ProbeID]probe
	probed []Probed // for the next Probed
	closed bool

	watch watch
}

// buffer is host memory for one extent.
type buffer struct {
	memory []byte
	pages  [][]byte
}

// Open allocates the buffers and begins to watch the stores. If it fails, the stores are
// still the caller's.
func Open(c Config) (*Carrier, error) {
	if c.Grace == 0 {
		c.Grace = DefaultGrace
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	x := &Carrier{cfg: c, mover: c.Backend.(engine.Mover), moves: map[tiering.MoveID]*carry{}, writes: map[target]*carry{}, probes: map[ProbeID]probe{}}
	for _, s := range c.Stores {
		x.stores[s.Info().Tier] = s
	}
	for range c.Buffers {
		m, err := x.mover.HostAlloc(c.Layout.ExtentBytes())
		if err != nil {
			x.free()
			return nil, fmt.Errorf("carrier: host memory for %d extents of %d bytes: %w", c.Buffers, c.Layout.ExtentBytes(), err)
		}
		b := &buffer{memory: m, pages: make([][]byte, c.Layout.ExtentPages)}
		for i := range b.pages {
			lo := i * c.Layout.PageBytes
			b.pages[i] = m[lo : lo+c.Layout.PageBytes : lo+c.Layout.PageBytes]
		}
		x.buffers = append(x.buffers, b)
	}
	sources := []<-chan struct{}{x.mover.Ready()}
	for _, s := range c.Stores {
		sources = append(sources, s.Ready())
	}
	x.watch.begin(sources)
	return x, nil
}

// Ready gets a value when Poll may have news; one value may stand for several.
func (x *Carrier) Ready() <-chan struct{} { return x.watch.ready }

// Begin begins a move. A move that can't begin ends by the next Poll, with why.
// The slices of m are the carrier's until its end. A Cancel names a move begun before.
func (x *Carrier) Begin(m *tiering.Move) {
	if m.Kind == tiering.Cancel {
		x.cancel(m.ID)
		return
	}
	c := &carry{Move: *m}
	x.track(c)
	x.start(c)
	if len(x.ended) > 0 {
		x.watch.wake()
	}
	x.arm()
}

// Poll appends what has happened since the last call, and takes the next step of each move.
func (x *Carrier) Poll(dst []Ended) []Ended {
	x.moved = x.mover.Moved(x.moved[:0])
	for _, d := range x.moved {
		if c := x.moves[tiering.MoveID(d.ID)]; c != nil && c.stage == copying {
			x.copied(c, d.Err)
		}
	}
	for t, s := range x.stores {
		if s == nil {
			continue
		}
		x.done = s.Poll(x.done[:0])
		for i := range x.done {
			x.stored(kv.Tier(t), &x.done[i])
		}
	}
	x.overdue(time.Now())
	x.unanswered(time.Now())
	x.release()
	x.arm()
	dst = append(dst, x.ended...)
	clear(x.ended)
	x.ended = x.ended[:0]
	return dst
}

// Busy is the number of moves that have not ended.
func (x *Carrier) Busy() int { return len(x.moves) }

// Metrics are those of the stores, by tier; ok says which tiers there are.
func (x *Carrier) Metrics() (m [kv.Tiers]mempool.StoreMetrics, ok [kv.Tiers]bool) {
	for t, s := range x.stores {
		if s != nil {
			m[t], ok[t] = s.Metrics(), true
		}
	}
	return m, ok
}

// Close cancels what runs, waits for it, closes the stores and gives the buffers back. Moves
// that had not ended are not told any more. Call it before the backend's Close, from the
// goroutine that polls. A second call does nothing.
func (x *Carrier) Close() error {
	if x.closed {
		return nil
	}
	x.closed = true
	for id := range x.moves { // each of them, in any order
		x.cancel(id)
	}
	for len(x.moves)+len(x.lost) > 0 {
		x.ended = x.Poll(x.ended[:0])[:0]
		if len(x.moves)+len(x.lost) > 0 {
			<-x.watch.ready
		}
	}
	x.watch.end()
	var errs []error
	for _, s := range x.stores {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	if x.kept != 0 {
		errs = append(errs, fmt.Errorf("carrier: %d buffers are in use with no move under way", x.kept))
	}
	x.free()
	return errors.Join(errs...)
}

// free gives the buffers back.
func (x *Carrier) free() {
	for _, b := range x.buffers {
		x.mover.HostFree(b.memory)
	}
	x.buffers = nil
}
