package residency

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/wire"
	"github.com/coppice-llm/coppice/internal/leaks"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/kvindex"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

const (
	blockTokens = 4
	topic       = "kv@hostile@model"
)

var honest, liar = kv.Rank{Worker: 1}, kv.Rank{Worker: 2}

// pipe is a Source whose frames come from a test. Its history is one snapshot, if not nil.
type pipe struct {
	frames   chan events.Frame
	next     uint64
	mu       sync.Mutex
	snapshot *events.Snapshot
	asked    int
}

func newPipe() *pipe { return &pipe{frames: make(chan events.Frame)} }

func (p *pipe) Start() <-chan events.Frame { return p.frames }

func (p *pipe) Replay(context.Context, uint64, func(events.Message) error) (uint64, error) {
	return 0, events.ErrUnsupported
}

func (p *pipe) Snapshot(context.Context) (events.Snapshot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if p.snapshot == nil {
		return events.Snapshot{}, events.ErrUnsupported
	}
	return *p.snapshot, nil
}

func (p *pipe) Close() error { return nil }

// keep sets the snapshot to return from now on; its Next is the next batch.
func (p *pipe) keep(payloads ...[]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.snapshot = &events.Snapshot{Next: p.next, Batches: payloads}
}

// raw sends the next batch.
func (p *pipe) raw(payload []byte) {
	p.frames <- events.Frame{Topic: topic, Message: events.Message{Seq: p.next, Payload: payload}}
	p.next++
}

func (p *pipe) batch(all ...wire.Event) { p.raw(payload(all...)) }

// settle returns when everything sent before has been processed.
func (p *pipe) settle() {
	p.frames <- events.Frame{Kind: events.FrameMalformed}
	p.frames <- events.Frame{Kind: events.FrameMalformed}
}

func payload(all ...wire.Event) []byte {
	return wire.AppendBatch(nil, &wire.Batch{Events: all}, wire.Form{})
}

// prompt returns a sequence of blocks that depends on seed.
func prompt(seed, blocks int) []uint32 {
	tokens := make([]uint32, blocks*blockTokens)
	for i := range tokens {
		tokens[i] = uint32(1000*seed + i)
	}
	return tokens
}

func hashesOf(tokens []uint32) (locals []kv.LocalHash, hashes []kv.BlockHash) {
	block := make([]kv.Token, blockTokens)
	for i := 0; i < len(tokens); i += blockTokens {
		for j := range block {
			block[j] = kv.Token(tokens[i+j])
		}
		locals = append(locals, kv.HashLocal(block, kv.Namespace{}.Seed()))
	}
	return locals, chain(locals)
}

// storedEvent returns a store of a prompt's blocks from one on, on a medium.
func storedEvent(tokens []uint32, from int, medium string) wire.Event {
	_, hashes := hashesOf(tokens)
	e := wire.Event{Kind: wire.BlockStored, BlockTokens: blockTokens, Tokens: tokens[from*blockTokens:], Medium: []byte(medium)}
	for _, h := range hashes[from:] {
		e.Hashes = append(e.Hashes, uint64(h))
	}
	if from > 0 {
		e.Parent, e.HasParent = uint64(hashes[from-1]), true
	}
	return e
}

func removedEvent(tokens []uint32, from int, medium string) wire.Event {
	e := storedEvent(tokens, from, medium)
	return wire.Event{Kind: wire.BlockRemoved, Hashes: e.Hashes, Medium: e.Medium}
}

// chained is the whole chain with an honest worker, whose stream continues whatever the other
// worker does.
type chained struct {
	t          testing.TB
	x          *Residency
	sub        *events.Subscriber
	good, evil *pipe
	steps      int
	own        []uint32 // the honest prompt stored now
	shared     []uint32 // a prompt that it always has
}

var chainLimits = Config{Index: kvindex.ShardedConfig{Shards: 2, Config: kvindex.Config{HolderBlocks: 64, Holders: 4}}, TierBlocks: 32}

func newChained(t testing.TB) *chained {
	t.Helper()
	x, err := New(chainLimits)
	if err != nil {
		t.Fatal(err)
	}
	sub, err := events.NewSubscriber(events.SubscriberConfig{BlockTokens: blockTokens, SaltedBlocks: 8, DumpBlocks: 1000,
		RetryMin: time.Microsecond, RetryMax: time.Microsecond}, x)
	if err != nil {
		t.Fatal(err)
	}
	c := &chained{t: t, x: x, sub: sub, good: newPipe(), evil: newPipe(), shared: prompt(7, 6)}
	t.Cleanup(sub.Close)
	for r, p := range map[kv.Rank]*pipe{honest: c.good, liar: c.evil} {
		if err := sub.Add(r, p, events.Follow{Topic: topic}); err != nil {
			t.Fatal(err)
		}
		p.frames <- events.Frame{Kind: events.FrameConnected}
	}
	c.good.batch(storedEvent(c.shared, 0, "GPU"))
	for range 3 {
		c.evil.batch()
	}
	c.step()
	return c
}

// step continues the honest stream and checks that its blocks are known exactly.
func (c *chained) step() {
	c.t.Helper()
	c.evil.settle()
	var batch []wire.Event
	if c.own != nil {
		batch = append(batch, removedEvent(c.own, 3, "GPU"), removedEvent(c.own, 0, "CPU"))
	}
	was := c.own
	c.own = prompt(100+c.steps%3, 8)
	c.steps++
	c.good.batch(append(batch, storedEvent(c.own, 0, "GPU"), storedEvent(c.own, 0, "CPU"), removedEvent(c.own, 5, "GPU"))...)
	c.good.settle()
	c.expect(c.shared, router.Overlap{Device: 6})
	c.expect(c.own, router.Overlap{Device: 5, Host: 3})
	if was != nil {
		c.expect(was, router.Overlap{Device: 3})
		c.good.batch(removedEvent(was, 0, "GPU"))
		c.good.settle()
		c.expect(was, router.Overlap{})
	}
	if err := c.x.Check(); err != nil {
		c.t.Fatal(err)
	}
	if n := c.x.Held(liar); n > 64+32 {
		c.t.Fatalf("%d blocks of the hostile worker are held", n)
	}
	if st, _ := c.sub.Status(honest); st.State != events.Live || st.Counts.OrphanBlocks > 0 {
		c.t.Fatalf("the honest worker is %v: %v", st.State, st.Counts)
	}
}

func (c *chained) expect(tokens []uint32, want router.Overlap) {
	c.t.Helper()
	locals, _ := hashesOf(tokens)
	got := found(c.t, c.x.Find(chain(locals), nil))[honest]
	if got.Worker = (kv.Rank{}); got != want {
		c.t.Fatalf("step %d: %+v of the honest worker, want %+v\n%v", c.steps, got, want, c.x.Stats())
	}
}

// none checks that the hostile worker is not credited with a prompt.
func (c *chained) none(what string, tokens []uint32) {
	c.t.Helper()
	locals, _ := hashesOf(tokens)
	if o, ok := found(c.t, c.x.Find(chain(locals), nil))[liar]; ok {
		c.t.Errorf("%s: %+v", what, o)
	}
}

// counts returns the hostile worker's counters.
func (c *chained) counts() events.Counts {
	st, _ := c.sub.Status(liar)
	return st.Counts
}

var mine, salted, otherSalted = hostileEvents()

// hostileEvents returns the hostile worker's prompt, and two stores with salts.
func hostileEvents() (tokens []uint32, salted, other wire.Event) {
	tokens = prompt(50, 4)
	salted = storedEvent(prompt(60, 4), 0, "GPU")
	salted.Extra = wire.AppendExtra(nil, [][]string{{"salt"}, nil, nil, nil})
	other = salted
	other.Hashes = []uint64{1, 2, 3, 4, 5}
	other.Tokens = prompt(61, 5)
	other.Extra = wire.AppendExtra(nil, [][]string{{"salt"}, nil, nil, nil, nil})
	return tokens, salted, other
}

// hostilities are messages of a worker that must not harm another one, each with the counter
// that counts it.
var hostilities = []struct {
	name  string
	send  func(c *chained)
	count func(e events.Counts, s Stats) uint64
	times uint64 // least count
}{
	{"frames that are no message", func(c *chained) {
		for range 5 {
			c.evil.frames <- events.Frame{Kind: events.FrameMalformed}
		}
	}, func(e events.Counts, _ Stats) uint64 { return e.Malformed }, 4}, // settle's last frame may be counted late
	{"hostile msgpack", func(c *chained) {
		for _, p := range hostilePayloads() {
			c.evil.raw(p)
		}
	}, func(e events.Counts, _ Stats) uint64 { return e.Malformed }, uint64(len(hostilePayloads())) - 1},
	{"impossible numbers", func(c *chained) {
		for _, seq := range []uint64{events.EndSeq, 1 << 63, events.EndSeq - 1} {
			c.evil.frames <- events.Frame{Topic: topic, Message: events.Message{Seq: seq, Payload: payload(storedEvent(mine, 0, "GPU"))}}
		}
	}, func(e events.Counts, _ Stats) uint64 { return e.Impossible }, 3},
	{"a gap", func(c *chained) { c.evil.next += 1000; c.evil.batch() },
		func(e events.Counts, _ Stats) uint64 { return e.Gaps }, 1},
	{"numbers again", func(c *chained) {
		c.evil.batch()
		c.evil.next -= 2
		c.evil.batch()
		c.evil.next++
	}, func(e events.Counts, _ Stats) uint64 { return e.Stale }, 1},
	{"another worker's topic", func(c *chained) {
		c.evil.frames <- events.Frame{Topic: "kv@other@model", Message: events.Message{Seq: c.evil.next, Payload: payload(storedEvent(mine, 0, "GPU"))}}
	}, func(e events.Counts, _ Stats) uint64 { return e.UnknownWorker }, 1},
	{"another rank's batch", func(c *chained) {
		c.evil.raw(wire.AppendBatch(nil, &wire.Batch{HasRank: true, Rank: 7, Events: []wire.Event{storedEvent(mine, 0, "GPU")}}, wire.Form{}))
	}, func(e events.Counts, _ Stats) uint64 { return e.UnknownWorker }, 1},
	{"unknown events", func(c *chained) { c.evil.raw([]byte("\x92\xcb\x00\x00\x00\x00\x00\x00\x00\x00\x91\x92\xa5Alien\x01")) },
		func(e events.Counts, _ Stats) uint64 { return e.UnknownEvents }, 1},
	{"unknown media", func(c *chained) { c.evil.batch(storedEvent(mine, 0, "TAPE"), removedEvent(mine, 0, "TAPE")) },
		func(e events.Counts, _ Stats) uint64 { return e.UnknownMedium }, 2},
	{"orphans", func(c *chained) { c.evil.batch(storedEvent(mine, 2, "GPU"), storedEvent(mine, 1, "DISK")) },
		func(e events.Counts, _ Stats) uint64 { return e.OrphanBlocks }, 5},
	{"hashes of others' blocks", func(c *chained) {
		c.evil.batch(storedEvent(prompt(51, 1), 0, "GPU"))
		lie := storedEvent(mine, 0, "GPU")
		lie.Hashes = storedEvent(c.shared[:4*blockTokens], 0, "GPU").Hashes
		c.evil.batch(lie, removedEvent(c.shared, 0, "GPU"), removedEvent(c.own, 0, "CPU"))
	}, func(_ events.Counts, s Stats) uint64 { return s.ForeignBlocks }, 4},
	{"salts without end", func(c *chained) { c.evil.batch(salted, otherSalted) },
		func(e events.Counts, _ Stats) uint64 { return e.RefusedSalted }, 1},
	{"connections without end", func(c *chained) {
		for range 50 {
			c.evil.frames <- events.Frame{Kind: events.FrameDisconnected}
			c.evil.frames <- events.Frame{Kind: events.FrameConnected}
		}
	}, func(e events.Counts, _ Stats) uint64 { return e.Recoveries }, 50},
	{"dumps that are none", func(c *chained) {
		c.evil.keep(payload(removedEvent(mine, 0, "GPU")))
		c.evil.frames <- events.Frame{Kind: events.FrameConnected}
		c.evil.keep(payload(storedEvent(mine, 0, "GPU")), []byte("hostile"))
		c.evil.frames <- events.Frame{Kind: events.FrameConnected}
		c.evil.keep(payload(storedEvent(prompt(52, 1001), 0, "GPU")))
		c.evil.frames <- events.Frame{Kind: events.FrameConnected}
	}, func(e events.Counts, _ Stats) uint64 { return e.FailedRecoveries }, 3},
	{"a dump of orphans", func(c *chained) {
		c.evil.keep(payload(storedEvent(mine, 1, "GPU"), storedEvent(mine, 2, "CPU")))
		c.evil.frames <- events.Frame{Kind: events.FrameConnected}
	}, func(e events.Counts, _ Stats) uint64 { return e.OrphanBlocks }, 5},
	{"blocks of another size", func(c *chained) {
		e := storedEvent(mine, 0, "GPU")
		e.BlockTokens, e.Hashes = blockTokens/2, slices.Concat(e.Hashes, e.Hashes)
		c.evil.batch(e)
		c.evil.batch(storedEvent(mine, 0, "GPU"))
	}, func(e events.Counts, _ Stats) uint64 { return e.Dropped }, 1},
}

// TestHostileWorker: malformed frames, hostile msgpack, impossible sequences and unknown workers
// are counted, and the index stays exact for the other worker.
func TestHostileWorker(t *testing.T) {
	for _, tc := range hostilities {
		t.Run(tc.name, func(t *testing.T) {
			c := newChained(t)
			before := tc.count(c.counts(), c.x.Stats())
			c.step()
			before += 2 * (tc.count(c.counts(), c.x.Stats()) - before) // settle sends malformed frames itself
			tc.send(c)
			c.step()
			for end := time.Now().Add(time.Minute); tc.count(c.counts(), c.x.Stats()) < before+tc.times; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("counted %d times, want %d\n%v\n%v", tc.count(c.counts(), c.x.Stats())-before, tc.times, c.counts(), c.x.Stats())
				}
			}
			c.none("what it lied about", mine)
			c.none("the other's", c.own)
			c.none("the shared", c.shared)
			for range 3 {
				c.step()
			}
		})
	}
}

// hostilePayloads must be refused by a decoder, quickly.
func hostilePayloads() [][]byte {
	whole := payload(storedEvent(prompt(50, 4), 0, "GPU"))
	all := [][]byte{
		nil, {0xc1}, {0xc0}, []byte("not msgpack"),
		{0xdd, 0xff, 0xff, 0xff, 0xff}, // an array of 2^32-1 elements
		{0xdf, 0xff, 0xff, 0xff, 0xff}, // a map of as many
		{0x92, 0x00, 0xdd, 0x7f, 0xff, 0xff, 0xff},
		{0x92, 0x00, 0x91, 0xdb, 0xff, 0xff, 0xff, 0xff}, // a text of as many bytes
	}
	deep := make([]byte, 1<<16)
	for i := range deep {
		deep[i] = 0x91
	}
	all = append(all, deep)
	for cut := 1; cut < len(whole); cut += 7 {
		all = append(all, whole[:cut])
	}
	return all
}

// TestFlood: a worker that stores endlessly fills only its own room.
func TestFlood(t *testing.T) {
	for _, medium := range []string{"GPU", "CPU", "DISK"} {
		t.Run(medium, func(t *testing.T) {
			c := newChained(t)
			for i := range 60 {
				for j := range 10 {
					c.evil.batch(storedEvent(prompt(1000+10*i+j, 4), 0, medium), storedEvent(prompt(5000+10*i+j, 1), 0, "CPU_PINNED"))
				}
				if i%10 == 0 {
					c.step()
				}
			}
			c.step()
			s, held := c.x.Stats(), c.x.Held(liar)
			if refused := s.OverfullBlocks + s.TierFullBlocks; refused < 2000 || held > 64+32 || held < 28 || c.x.kinds().lossy != 1 {
				t.Errorf("%d held\n%v", held, s)
			}
			// Another worker still has its room.
			late := kv.Rank{Worker: 3}
			for i := range 16 {
				if err := c.x.Store(late, storedBy(prompt(300+i, 4), kv.TierDevice)); err != nil {
					t.Fatal(err)
				}
			}
			if n := c.x.Held(late); n != 64 {
				t.Errorf("%d blocks of a worker that came late", n)
			}
			// After a clear the flooding worker works as new.
			c.evil.batch(wire.Event{Kind: wire.AllBlocksCleared}, storedEvent(prompt(8, 5), 0, "GPU"))
			c.step()
			locals, _ := hashesOf(prompt(8, 5))
			if got := found(t, c.x.Find(chain(locals), nil))[liar]; got.Device != 5 || c.x.kinds().lossy != 0 {
				t.Errorf("%+v\n%v", got, c.x.Stats())
			}
		})
	}
}

func storedBy(tokens []uint32, tier kv.Tier) events.Stored {
	locals, _ := hashesOf(tokens)
	return storedOf(locals, 0, tier)
}

// TestRefusalsAreNotRecoveredFrom: blocks after refused ones do not count as lost events. A
// worker beyond its limits is not asked for its history each time.
func TestRefusalsAreNotRecoveredFrom(t *testing.T) {
	c := newChained(t)
	c.evil.keep()
	long := prompt(9, 100) // the limit is 64
	c.evil.batch(storedEvent(long[:80*blockTokens], 0, "GPU"))
	for from := 1; from < 99; from++ {
		c.evil.batch(storedEvent(long[:(from+1)*blockTokens], from, "GPU"))
	}
	c.step()
	if n, s := c.evil.asked, c.x.Stats(); n > 1 || s.BelowRefusedBlocks != 98 || s.OverfullBlocks != 80 {
		t.Errorf("%d recoveries\n%v", n, s)
	}
}

// FuzzChain: no bytes of a worker cause a crash; what it can fill is bounded, and another worker
// is known exactly.
func FuzzChain(f *testing.F) {
	mine := prompt(50, 4)
	for _, e := range [][]wire.Event{
		{storedEvent(mine, 0, "GPU")}, {storedEvent(mine, 0, "CPU"), storedEvent(mine, 2, "GPU"), removedEvent(mine, 1, "CPU")},
		{storedEvent(mine, 1, "DISK"), {Kind: wire.AllBlocksCleared}, storedEvent(prompt(7, 6), 0, "GPU")},
	} {
		f.Add([]byte{0, 1, 2, 3, 4, 5, 6}, payload(e...), payload(storedEvent(mine, 0, "GPU")))
	}
	for i, p := range hostilePayloads() {
		f.Add([]byte{byte(i), 6, 0, 4, 0}, p, payload(storedEvent(mine, 0, "CPU")))
	}
	f.Fuzz(func(t *testing.T, frames, a, b []byte) {
		c := newChained(t)
		defer c.sub.Close()
		for i, kind := range frames[:min(len(frames), 20)] {
			switch body := [][]byte{a, b}[int(kind/8)%2]; kind % 8 {
			case 0, 1:
				c.evil.raw(body)
			case 2:
				c.evil.frames <- events.Frame{Topic: string(b), Message: events.Message{Payload: a}}
			case 3:
				c.evil.frames <- events.Frame{Topic: topic, Message: events.Message{Seq: uint64(kind) << (8 * (i % 8)), Payload: body}}
			case 4:
				c.evil.frames <- events.Frame{Kind: events.FrameConnected}
			case 5:
				c.evil.frames <- events.Frame{Kind: events.FrameDisconnected}
			case 6:
				c.evil.keep(body)
			case 7:
				c.evil.next += uint64(kind / 16)
			}
		}
		c.step()
		c.step()
	})
}
