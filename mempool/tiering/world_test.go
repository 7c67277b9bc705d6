package tiering

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

var layout = mempool.Layout{PageTokens: 4, PageBytes: 256, ExtentPages: 4}

func tierOf(extents int) TierConfig {
	return TierConfig{Bytes: int64(extents) * 1024, SlotBytes: 1024, MaxMoves: 3, Bandwidth: 1e6}
}

// world is a naive model of the tiers that a book controls: sets of extents, and moves that end
// at any time with any error.
type world struct {
	t       *testing.T
	b       *Book
	rng     *rand.Rand
	now     time.Duration
	tiers   [kv.Tiers]map[mempool.Key]mempool.Extent
	flights []Move
	failed  map[string]bool // failed reads, until the extent is written again
	told    [kv.Tiers]map[mempool.Key]bool
	wants   map[RequestID]int           // tokens promised
	pages   map[mempool.Key][]kv.PageID // of the device, by extent
	page    kv.PageID                   // the latest
	log     []string

	requests RequestID
}

func (w *world) children(t kv.Tier, k mempool.Key) bool {
	for _, x := range w.tiers[t] {
		if x.Parent == k {
			return true
		}
	}
	return false
}

func (w *world) remove(t kv.Tier, k mempool.Key) (gone []mempool.Key) {
	for _, x := range w.sorted(t) {
		if x.Parent == k {
			gone = append(gone, w.remove(t, x.Key)...)
		}
	}
	if _, ok := w.tiers[t][k]; ok {
		delete(w.tiers[t], k)
		gone = append(gone, k)
	}
	return gone
}

// sorted returns the extents of a tier in an order that is the same in each run.
func (w *world) sorted(t kv.Tier) []mempool.Extent {
	var all []mempool.Extent
	for _, x := range w.tiers[t] {
		all = append(all, x)
	}
	slices.SortFunc(all, func(a, b mempool.Extent) int { return slices.Compare(a.Key[:], b.Key[:]) })
	return all
}

func (w *world) chain() []mempool.Extent {
	tokens := make([]kv.Token, 16*(1+w.rng.IntN(4))+4*w.rng.IntN(4))
	for i := range tokens {
		tokens[i] = kv.Token(i / 16)
	}
	tokens[0] = kv.Token(w.rng.IntN(4))
	tokens[len(tokens)/2] = kv.Token(w.rng.IntN(3))
	return layout.AppendExtents(nil, kv.Namespace{Salt: fmt.Sprint(w.rng.IntN(2))}, tokens, nil)
}

// step makes one random input.
func (w *world) step(faults bool) {
	w.now = w.now + time.Millisecond
	switch op := w.rng.IntN(12); {
	case op < 3:
		for _, x := range w.chain() {
			w.compute(x)
		}
	case op < 5:
		if all := w.sorted(kv.TierDevice); len(all) > 0 {
			x := all[w.rng.IntN(len(all))]
			pages := w.pages[x.Key]
			w.b.Evict(w.now, pages[w.rng.IntN(len(pages)):][:1], Demoted)
			w.took(begun(w.b))
			w.sweep()
		}
	case op < 7:
		xs := w.chain()
		i := 0
		for i < len(xs) && w.tiers[kv.TierDevice][xs[i].Key].Tokens != nil {
			i++
		}
		w.requests++
		id := w.requests
		w.wants[id] = 0
		for _, part := range w.b.Want(w.now, id, xs[i:], 0, nil) {
			w.wants[id] += part.Tokens
		}
	case op < 8:
		for _, x := range w.chain() {
			w.b.Used(w.now, x.Key)
		}
	case op < 9:
		xs := w.chain()
		w.b.Idle(w.now, xs[len(xs)-1].Key)
	case op < 10 && len(w.wants) > 3:
		oldest := RequestID(1 << 60)
		for id := range w.wants {
			oldest = min(oldest, id)
		}
		w.b.Forget(oldest)
		delete(w.wants, oldest)
	case op < 11 && faults && w.rng.IntN(8) == 0:
		w.discard()
	default:
		w.finish(faults)
	}
	if w.rng.IntN(2) == 0 {
		w.b.Offer(w.now)
	}
	w.next()
	w.check()
}

// discard discards a random extent, or occasionally all.
func (w *world) discard() {
	if w.rng.IntN(8) == 0 {
		w.b.Clear()
		clear(w.tiers[kv.TierDevice])
		for t := range w.b.tiers {
			for k := range w.tiers[t] {
				if t > 0 && w.b.on(kv.Tier(t), k) {
					w.t.Fatalf("%s has %s after a flush", kv.Tier(t), k.Short())
				}
				if t > 0 && w.b.tiers[t].Kept {
					delete(w.tiers[t], k) // as if the shared directory had forgotten it, too
				}
			}
		}
		return
	}
	xs := w.chain()
	x := xs[w.rng.IntN(len(xs))]
	w.b.Discard(x.Key)
	w.remove(kv.TierDevice, x.Key)
	for t := range w.b.tiers {
		if w.b.on(kv.Tier(t), x.Key) {
			w.t.Fatalf("%s has %s, which is wrong", kv.Tier(t), x.Key.Short())
		}
	}
}

// compute puts an extent on pages of the device that nothing has used before.
func (w *world) compute(x mempool.Extent) {
	if _, ok := w.tiers[kv.TierDevice][x.Key]; !ok {
		w.pages[x.Key] = nil
		for range layout.Pages(&x) {
			w.page++
			w.pages[x.Key] = append(w.pages[x.Key], w.page)
		}
	}
	w.b.Computed(w.now, &x, w.pages[x.Key], nil)
	w.tiers[kv.TierDevice][x.Key] = x
	w.sweep()
}

// sweep forgets what has left the device with another extent.
func (w *world) sweep() {
	for k := range w.tiers[kv.TierDevice] {
		if !holds(w.b, kv.TierDevice, k) {
			delete(w.tiers[kv.TierDevice], k)
		}
	}
}

// next takes the moves to begin and checks that each is allowed.
func (w *world) next() { w.took(w.b.Next(w.now, nil)) }

func (w *world) took(moves []Move) {
	for _, m := range moves {
		w.log = append(w.log, fmt.Sprint(m.ID, m.Kind, m.From, m.To, m.Extent.Key.Short(), len(m.Extent.Tokens)))
		key := fmt.Sprint(m.From, m.Extent.Key)
		switch m.Kind {
		case Cancel:
			continue
		case Write:
			_, parent := w.tiers[m.To][m.Extent.Parent]
			before := slices.ContainsFunc(w.flights, func(o Move) bool { return o.Kind == Write && o.To == m.To && o.Extent.Key == m.Extent.Parent })
			if !m.Extent.Parent.IsZero() && !parent && !before {
				w.t.Fatalf("a child is written before its parent: %s", m.Extent.Key.Short())
			}
			if _, ok := w.tiers[m.From][m.Extent.Key]; !ok && !w.gone(m) {
				w.t.Fatalf("a write from %s of a missing extent", m.From)
			}
			if m.From == kv.TierDevice && !slices.Equal(m.Pages, w.pages[m.Extent.Key]) {
				w.t.Fatalf("a write of pages %v, the extent is on %v", m.Pages, w.pages[m.Extent.Key])
			}
		case Read:
			if w.failed[key] {
				w.t.Fatal("a read that failed is tried again")
			}
		case Drop:
			if w.children(m.From, m.Extent.Key) {
				w.t.Fatal("a parent leaves before its children")
			}
		}
		w.flights = append(w.flights, m)
	}
}

// gone reports whether an extent may have vanished without the book's knowledge.
func (w *world) gone(m Move) bool { return m.From != kv.TierDevice }

// finish ends a random move in flight.
func (w *world) finish(faults bool) {
	if len(w.flights) == 0 {
		return
	}
	i := 0
	if faults { // without faults, moves end in order
		i = w.rng.IntN(len(w.flights))
	}
	m := w.flights[i]
	// By the contract of stores, a child's write ends after its parent's.
	for m.Kind == Write {
		j := slices.IndexFunc(w.flights, func(o Move) bool { return o.Kind == Write && o.To == m.To && o.Extent.Key == m.Extent.Parent })
		if j < 0 {
			break
		}
		i, m = j, w.flights[j]
	}
	w.flights = slices.Delete(w.flights, i, i+1)
	err := w.do(m, faults && w.rng.IntN(6) == 0)
	w.b.Moved(w.now, m.ID, err, time.Duration(1+w.rng.IntN(5))*time.Millisecond)
	w.b.Moved(w.now, m.ID, err, time.Second) // the second answer must be ignored
	if x, ok := w.tiers[m.From][m.Extent.Key]; ok && m.Kind == Read && err == nil && w.rng.IntN(2) == 0 {
		if _, parent := w.tiers[kv.TierDevice][x.Parent]; parent || x.Parent.IsZero() { // it is used
			w.compute(x)
		}
	}
}

func (w *world) do(m Move, fault bool) error {
	k, key := m.Extent.Key, fmt.Sprint(m.From, m.Extent.Key)
	switch m.Kind {
	case Write:
		_, parent := w.tiers[m.To][m.Extent.Parent]
		switch {
		case fault:
			return syscall.EIO
		case !m.Extent.Parent.IsZero() && !parent:
			return mempool.ErrOrphan
		}
		w.tiers[m.To][k] = m.Extent
		delete(w.failed, fmt.Sprint(m.To, k))
	case Read:
		_, ok := w.tiers[m.From][k]
		switch {
		case ok && fault && w.rng.IntN(2) == 0:
			return mempool.ErrDeadline
		case ok && fault:
			w.failed[key] = true
			w.b.Gone(m.From, w.remove(m.From, k))
			return mempool.ErrCorrupt
		case !ok:
			w.failed[key] = true
			return mempool.ErrMiss
		}
	case Drop:
		w.remove(m.From, k)
	}
	return nil
}

func (w *world) check() {
	if err := w.b.Check(); err != nil {
		w.t.Fatal(err)
	}
	for _, c := range w.b.Changes(nil) {
		if w.told[c.Tier][c.Key] == c.Stored {
			w.t.Fatalf("%s of %s is told twice", c.Tier, c.Key.Short())
		}
		w.told[c.Tier][c.Key] = c.Stored
	}
	var moves [kv.Tiers]int
	for _, m := range w.flights {
		moves[m.From]++
		if m.Kind == Write {
			moves[m.To]++
		}
	}
	for t := kv.TierHost; int(t) < kv.Tiers; t++ {
		if most := w.b.cfg.Tiers[t].MaxMoves; moves[t] > most+2 { // 2 more for drops of orphans
			w.t.Fatalf("%d moves of %s, at most %d", moves[t], t, most)
		}
	}
}

// drain ends all moves in flight until no more begin.
func (w *world) drain() {
	for range 100_000 {
		w.next()
		if len(w.flights) == 0 {
			return
		}
		w.finish(false)
		w.check()
	}
	w.t.Fatal("moves do not end")
}

func play(t *testing.T, seed uint64, steps int, mode Mode, faults bool) []string {
	rng := rand.New(rand.NewPCG(seed, 3))
	c := Config{Layout: layout, Mode: mode, TokenSeconds: 1e-3 * rng.Float64()}
	if rng.IntN(4) > 0 {
		c.Tiers[kv.TierHost] = tierOf(4 + rng.IntN(12))
	}
	if c.Tiers[kv.TierHost].Bytes == 0 || rng.IntN(3) > 0 {
		c.Tiers[kv.TierDisk] = tierOf(6 + rng.IntN(20))
		c.Tiers[kv.TierDisk].NamespaceBytes = c.Tiers[kv.TierDisk].Bytes * 2 / 3
	}
	if rng.IntN(2) == 0 {
		c.Tiers[kv.TierShared] = tierOf(40)
		c.Tiers[kv.TierShared].Kept, c.Tiers[kv.TierShared].FullOnly = true, true
	}
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, b: b, rng: rng, now: 1000 * time.Second, failed: map[string]bool{}, wants: map[RequestID]int{}, pages: map[mempool.Key][]kv.PageID{}}
	for i := range w.tiers {
		w.tiers[i], w.told[i] = map[mempool.Key]mempool.Extent{}, map[mempool.Key]bool{}
	}
	for range steps {
		w.step(faults)
	}
	at := rng.IntN(3) // shut down with moves in flight, after they ended, or not at all
	if at == 0 {
		b.Shutdown(w.now, w.now+time.Second)
	}
	w.drain()
	for id, want := range w.wants {
		tokens, waiting := b.Arrived(id)
		if waiting || tokens > want {
			t.Fatalf("request %d: %d tokens of %d, waiting %v", id, tokens, want, waiting)
		}
		b.Forget(id)
	}
	if at == 1 {
		b.Shutdown(w.now, w.now+time.Second)
		w.drain()
		w.now = w.now + 2*time.Second
		w.drain()
	}
	if b.Busy() {
		t.Fatal("the book is busy for ever")
	}
	for tier := kv.TierHost; int(tier) < kv.Tiers; tier++ {
		for k, told := range w.told[tier] {
			if _, there := w.tiers[tier][k]; there != told || holds(b, tier, k) != there {
				t.Fatalf("%s has %s: %v, told %v, held %v", tier, k.Short(), there, told, holds(b, tier, k))
			}
		}
		for k := range w.tiers[tier] {
			if !holds(b, tier, k) {
				t.Fatalf("%s has %s and the book does not know", tier, k.Short())
			}
		}
		if held := b.tiers[tier]; held != nil && held.reserved != 0 {
			t.Fatalf("%d bytes of %s stay reserved", held.reserved, tier)
		}
	}
	return w.log
}

func FuzzBook(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed, uint16(400), uint8(seed%3), seed%2 == 0)
	}
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16, mode uint8, faults bool) {
		n := min(int(steps), 1500)
		log := play(t, seed, n, Mode(mode%3), faults)
		if again := play(t, seed, n, Mode(mode%3), faults); !slices.Equal(log, again) {
			t.Fatal("the same inputs give other moves")
		}
	})
}
