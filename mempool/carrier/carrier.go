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

// Config configures a Carrier. Backend, Layout, Stores and Buffers are required.
type Config struct {
	// Backend must be an engine.Mover.
	Backend engine.Backend
	// Layout is the layout of the stores' extents.
	Layout mempool.Layout
	// Stores are the stores of the tiers below the device, at most one per tier. After a
	// successful New, the carrier owns them and closes them.
	Stores []mempool.Store
	// Buffers is how many extents can be in flight; use the sum of the tiers' MaxMoves. A move
	// that finds no free buffer ends with mempool.ErrBusy.
	Buffers int
	// Start is the wall time at which the scheduler's clock is 0. Deadlines of moves count
	// from it.
	Start time.Time
}

// Validate returns an error that names all invalid fields, or nil.
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
	if len(c.Stores) == 0 || c.Buffers < 1 {
		errs = append(errs, fmt.Errorf("carrier: %d Stores, Buffers %d, want at least 1 and 1", len(c.Stores), c.Buffers))
	}
	return errors.Join(errs...)
}

// Ended reports the end of a move, or, if Copied is true, a step of it.
type Ended struct {
	ID tiering.MoveID
	// Copied reports that a write has copied its pages from the device, which may be reused.
	// The move continues; all other fields but ID are zero.
	Copied bool
	// Err is the reason of a failure, nil for success. After a Read without error the device's
	// pages hold the KV.
	Err error
	// Took is the time that the stores worked, without time in queues and on the device.
	Took time.Duration
	// Gone lists extents that the store of tier GoneFrom no longer has, children first.
	Gone     []mempool.Key
	GoneFrom kv.Tier
}

// Carrier carries out moves. Use New to make one.
type Carrier struct {
	cfg     Config
	mover   engine.Mover
	stores  [kv.Tiers]mempool.Store // nil if there is no such tier
	buffers []*buffer               // free buffers
	kept    int                     // number of buffers in use

	moves  map[tiering.MoveID]*carry // and probes
	writes map[target]*carry         // the writes among moves
	held   []*carry                  // writes whose Put must wait, see mustWait, in order of Begin
	late   []*carry                  // scratch of overdue
	lost   []*carry                  // given up, but their stores have not ended the operations
	ended  []Ended                   // for the next Poll
	moved  []engine.Moved            // scratch of Poll
	done   []mempool.Done            // scratch of Poll
	probed []Probed                  // for the next Probed
	closed bool
	limit  time.Time // no move has a later deadline; zero: none

	watch watch
}

// buffer is host memory for one extent.
type buffer struct {
	memory []byte
	pages  [][]byte
}

// New allocates the buffers and begins to watch the stores. If it fails, the caller still owns
// the stores.
func New(c Config) (*Carrier, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	x := &Carrier{cfg: c, mover: c.Backend.(engine.Mover), moves: map[tiering.MoveID]*carry{}, writes: map[target]*carry{}}
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

// Ready returns a channel that gets a value when Poll may have results; one value may stand for
// several.
func (x *Carrier) Ready() <-chan struct{} { return x.watch.ready }

// Begin begins a move, or for a Cancel cancels the move with its ID. The next Poll reports a move
// that can't begin, with the reason. The carrier owns the slices of m until the move's end.
func (x *Carrier) Begin(m *tiering.Move) {
	if m.Kind == tiering.Cancel {
		x.cancel(m.ID)
		return
	}
	c := &carry{Move: *m, begun: time.Now()}
	x.track(c)
	x.start(c)
	x.watched(c)
}

// watched sets the alarm for a move or probe that has just begun, or wakes Poll if it has ended already.
func (x *Carrier) watched(c *carry) {
	if x.moves[c.ID] != c {
		x.watch.wake()
	}
	x.arm()
}

// Poll takes the next steps of all moves. It returns dst with the ends and copies of moves appended
// that have happened since the last call.
func (x *Carrier) Poll(dst []Ended) []Ended {
	x.moved = x.mover.Moved(x.moved[:0])
	for _, d := range x.moved {
		if c := x.moves[tiering.MoveID(d.ID)]; c != nil && c.stage == copying {
			x.copied(c, d.Err)
		}
	}
	x.collect()
	x.overdue(time.Now())
	x.release()
	x.arm()
	dst = append(dst, x.ended...)
	clear(x.ended)
	x.ended = x.ended[:0]
	return dst
}

// collect takes the ended operations of all stores.
func (x *Carrier) collect() {
	for t, s := range x.stores {
		if s == nil {
			continue
		}
		x.done = s.Poll(x.done[:0])
		for i := range x.done {
			x.stored(kv.Tier(t), &x.done[i])
		}
	}
}

// Metrics returns the metrics of the stores by tier; ok reports which tiers exist.
func (x *Carrier) Metrics() (m [kv.Tiers]mempool.StoreMetrics, ok [kv.Tiers]bool) {
	for t, s := range x.stores {
		if s != nil {
			m[t], ok[t] = s.Metrics(), true
		}
	}
	return m, ok
}
