package actors

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/backends"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/stores"
	"github.com/coppice-llm/coppice/mempool/storetest"
	"github.com/coppice-llm/coppice/mempool/tiering"
)

// tierPool is the number of tokens of the device's pool in these tests: room for two prompts.
const tierPool = 512

// tierPrompt returns the n-th prompt of 200 tokens.
func tierPrompt(n int) []kv.Token {
	rng := rand.New(rand.NewPCG(uint64(n), 1))
	tokens := make([]kv.Token, 200)
	for i := range tokens {
		tokens[i] = kv.Token(rng.IntN(100))
	}
	return tokens
}

// tierAsk runs prompt n with a short output.
func tierAsk(t *testing.T, s *System, n int) *Ending {
	t.Helper()
	_, _, e := drain(t, open(t, s, Request{Tokens: tierPrompt(n), MaxTokens: 3, IgnoreEOS: true, Digest: true}))
	if e.Err != nil {
		t.Fatalf("prompt %d: %v", n, e.Err)
	}
	return e
}

// startTiers starts a system with a small pool on the cpu backend.
func startTiers(t *testing.T, c stores.Config) *System {
	t.Helper()
	c.ExtentPages = 4
	tiers := Tiers{Open: c.Open, TokenSeconds: 1} // 1 s per token, or this small model would compute instead of fetching
	return start(t, Config{Tiers: tiers}, cpu.Config{KVTokens: tierPool, PageTokens: 16})
}

// closeTiers closes a system and checks that nothing leaked.
func closeTiers(t *testing.T, s *System) Stats {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	st, err := s.Stats(patience(t))
	if err != nil || st.LeakedPages != 0 {
		t.Fatalf("%v, %d pages leaked", err, st.LeakedPages)
	}
	return st
}

// written waits until the first tier has the given number of extents, counting failed writes:
// evicted KV is found in a tier only once its copy is complete.
func written(t *testing.T, s *System, extents int) {
	t.Helper()
	ctx := patience(t)
	for {
		st, err := s.Stats(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if m := st.Tiers[0]; m.Extents >= extents || m.Lost+m.Errors > 0 {
			return
		}
	}
}

// digests returns the logit digests of prompts [0, n) without tiers.
func digests(t *testing.T, n int) (all []uint64) {
	s := start(t, Config{}, cpu.Config{KVTokens: 256 * (n + 1), PageTokens: 16})
	for i := range n {
		all = append(all, tierAsk(t, s, i).LogitDigest)
	}
	return all
}

// TestTiersHost: prompts of three times the pool's size return from host memory, bit by bit.
func TestTiersHost(t *testing.T) {
	const prompts = 6
	want := digests(t, prompts)
	s := startTiers(t, stores.Config{HostBytes: 32 << 20})
	fetched, missed := 0, 0
	for round := range 3 {
		for n := range prompts {
			written(t, s, 3*min(prompts, max(0, round*prompts+n-2))) // all but the two latest
			e := tierAsk(t, s, n)
			if e.LogitDigest != want[n] {
				t.Errorf("round %d, prompt %d: other logit bits, with %v cached", round, n, e.CachedByTier)
			}
			if sum := e.CachedByTier[kv.TierDevice] + e.CachedByTier[kv.TierHost]; sum != e.CachedTokens {
				t.Errorf("round %d, prompt %d: %v sums up to %d of %d cached tokens", round, n, e.CachedByTier, sum, e.CachedTokens)
			}
			if round > 0 {
				missed += max(192-e.CachedTokens, 0)
			}
			fetched += e.CachedByTier[kv.TierHost]
		}
	}
	st := closeTiers(t, s)
	if most := 192 * int(st.Tiers[0].Errors+st.Tiers[0].Lost); missed > most { // on a stalled machine a read may pass its deadline, and writes may not keep up
		t.Errorf("%d tokens were not found: %+v", missed, st.Tiers[0])
	}
	if fetched == 0 || len(st.Tiers) != 1 || st.Tiers[0].HitTokens != uint64(fetched) || st.Tiers[0].Reads == 0 {
		t.Errorf("%d tokens fetched; %+v", fetched, st.Tiers)
	}
}

// TestTiersRestart: a system, with or without host memory, finds what an orderly Close wrote to
// disk, bit by bit. A system with another KV type finds nothing and leaves the files alone.
func TestTiersRestart(t *testing.T) {
	const prompts = 3
	want := digests(t, prompts)
	dir := t.TempDir()
	s := startTiers(t, stores.Config{HostBytes: 32 << 20, Disk: dir, DiskBytes: 64 << 20})
	for n := range prompts {
		tierAsk(t, s, n)
	}
	closeTiers(t, s)
	other := start(t, Config{Tiers: Tiers{Open: stores.Config{Disk: dir, DiskBytes: 64 << 20, ExtentPages: 4}.Open}}, cpu.Config{KVTokens: tierPool, PageTokens: 16, KVType: kv.BF16})
	if e := tierAsk(t, other, 0); e.CachedTokens != 0 {
		t.Errorf("KV of another type is used: %v", e.CachedByTier)
	}
	closeTiers(t, other)
	for _, host := range []int64{0, 32 << 20} {
		s := startTiers(t, stores.Config{HostBytes: host, Disk: dir, DiskBytes: 64 << 20})
		cached := 0
		for n := range prompts {
			e := tierAsk(t, s, n)
			if e.LogitDigest != want[n] {
				t.Errorf("prompt %d: other logit bits after the restart", n)
			}
			cached += e.CachedByTier[kv.TierDisk]
		}
		st := closeTiers(t, s)
		late := 0 // reads that passed their deadline, on a stalled machine
		for _, tier := range st.Tiers {
			late += int(tier.Errors)
		}
		if cached < 192*(prompts-late) {
			t.Errorf("host memory %d: %d tokens of %d prompts came from disk, want %d; %+v", host, cached, prompts, prompts*192, st.Tiers)
		}
	}
}

// tierStore opens a store of a tier, wrapped in a fault injector.
func tierStore(t *testing.T, tier kv.Tier, dir string, info engine.Info, in *storetest.Injector) mempool.Store {
	t.Helper()
	id := identity(&info)
	id.Layout.ExtentPages = 4
	c := stores.Config{Required: true, Inject: in}
	switch tier {
	case kv.TierHost:
		c.HostBytes = 8 << 20
	case kv.TierDisk:
		c.Disk, c.DiskBytes = dir, 16<<20
	default:
		c.Share, c.ShareBytes = dir, 16<<20
	}
	opened, _, err := c.Open(id, nil)
	if err != nil {
		t.Fatal(err)
	}
	return opened[0]
}

// TestTiersFaults: whatever a store's calls return, every request completes with the tokens of
// a device without tiers, on a device that checks every slot it reads; then the system closes
// in order.
func TestTiersFaults(t *testing.T) {
	device := func() engine.Backend {
		b, err := sim.Open(sim.Config{PageTokens: 16, Pages: tierPool / 16, Sanitize: sim.Full, Vocab: nano.Config().Vocab})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	ask := func(s *System, n int) []kv.Token {
		tokens, _, e := drain(t, open(t, s, Request{Tokens: tierPrompt(n), MaxTokens: 3, IgnoreEOS: true}))
		if e.Err != nil {
			t.Fatalf("prompt %d: %v", n, e.Err)
		}
		return tokens
	}
	plain := start(t, Config{Backend: device()}, cpu.Config{})
	var want [][]kv.Token
	for n := range 6 {
		want = append(want, ask(plain, n))
	}
	for _, tier := range []kv.Tier{kv.TierHost, kv.TierDisk, kv.TierShared} {
		for _, at := range []storetest.Point{storetest.AtRead, storetest.AtWrite} {
			for _, fault := range append(storetest.Faults(), storetest.Slow) {
				for _, forever := range []bool{false, true} {
					t.Run(fmt.Sprintf("%v/%v/%v/forever=%v", tier, at, fault, forever), func(t *testing.T) {
						b, in := device(), &storetest.Injector{}
						s := start(t, Config{Backend: b, Tiers: Tiers{Stores: []mempool.Store{tierStore(t, tier, t.TempDir(), b.Info(), in)}, Write: tiering.Through, Flush: -1, TokenSeconds: 1e-3}}, cpu.Config{})
						in.Plant(at, fault, 3, forever)
						for i := range 18 {
							if got := ask(s, i%6); !slices.Equal(got, want[i%6]) {
								t.Fatalf("prompt %d is continued otherwise", i%6)
							}
						}
						in.Clear()
						closeTiers(t, s) // a late read may hold its pages until then
					})
				}
			}
		}
	}
}

// TestTiersCUDA: what a GPU evicts to host memory and to disk comes back with the same bits.
// The kernels run in the interpreter, which checks every access.
func TestTiersCUDA(t *testing.T) {
	device := func() engine.Backend {
		b, err := backends.Open("ptxvm", backends.Options{Model: nano, PageTokens: 16, KVTokens: 96, MaxSlots: 2, MaxRows: 2, MaxTokens: 64})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	ask := func(s *System, n int) *Ending {
		_, _, e := drain(t, open(t, s, Request{Tokens: tierPrompt(n)[:40], MaxTokens: 2, IgnoreEOS: true, Digest: true}))
		if e.Err != nil {
			t.Fatalf("prompt %d: %v", n, e.Err)
		}
		return e
	}
	dir := t.TempDir()
	var want []uint64
	for i, c := range []stores.Config{{HostBytes: 1 << 20}, {HostBytes: 1 << 20, Disk: dir, DiskBytes: 8 << 20}, {Disk: dir, DiskBytes: 8 << 20}} {
		c.ExtentPages = 1
		s := start(t, Config{Backend: device(), Tiers: Tiers{Open: c.Open, TokenSeconds: 1}}, cpu.Config{})
		var below [kv.Tiers]int
		for n := range 8 {
			if n == 4 {
				written(t, s, 4)
			}
			e := ask(s, n%4)
			for tier := kv.TierHost; int(tier) < kv.Tiers; tier++ {
				below[tier] += e.CachedByTier[tier]
			}
			if len(want) <= n%4 {
				want = append(want, e.LogitDigest)
			} else if e.LogitDigest != want[n%4] {
				t.Errorf("tiers %d, prompt %d has other bits", i, n%4)
			}
		}
		if closeTiers(t, s); below[kv.TierHost]+below[kv.TierDisk] == 0 || i == 2 && below[kv.TierDisk] == 0 {
			t.Errorf("tiers %d: tokens from below: %v", i, below)
		}
	}
}

// TestTiersSlowWrite: a request whose prefix is being written to a tier that hangs waits for it
// until the fetch's deadline, though nothing else happens, and is computed then.
func TestTiersSlowWrite(t *testing.T) {
	b, err := sim.Open(sim.Config{PageTokens: 16, Pages: tierPool / 16, Vocab: nano.Config().Vocab})
	if err != nil {
		t.Fatal(err)
	}
	in := &storetest.Injector{}
	s := start(t, Config{Backend: b, Tiers: Tiers{Stores: []mempool.Store{tierStore(t, kv.TierDisk, t.TempDir(), b.Info(), in)}, Write: tiering.Through, Flush: -1, TokenSeconds: 1e-3}}, cpu.Config{})
	in.Plant(storetest.AtWrite, storetest.Slow, 1, true)
	for n := range 4 { // the last ones evict the first
		tierAsk(t, s, n)
	}
	e := tierAsk(t, s, 0)
	st, err := s.Stats(patience(t))
	if n := e.CachedByTier[kv.TierDisk]; err != nil || n != 0 || st.Tiers[0].Errors != 0 {
		t.Errorf("%d tokens come from a disk that hangs, and %d of its writes have ended; %v", n, st.Tiers[0].Errors, err)
	}
	in.Clear()
	closeTiers(t, s)
}

// TestTiersRefused: invalid configurations are refused before anything is opened. A directory in use
// is refused if it is required; else the system runs without that tier.
func TestTiersRefused(t *testing.T) {
	dir := t.TempDir()
	for name, tiers := range map[string]Tiers{
		"no size":      {Open: stores.Config{Disk: dir}.Open},
		"no directory": {Open: stores.Config{ShareBytes: 1}.Open},
		"too small":    {Open: stores.Config{HostBytes: 100}.Open},
		"negative":     {Open: stores.Config{HostBytes: -1}.Open},
		"mode":         {Open: stores.Config{HostBytes: 1 << 30}.Open, Write: 9},
	} {
		b := backend(t, cpu.Config{})
		s, err := Start(Config{Backend: b, Tiers: tiers})
		if err == nil {
			s.Close()
			t.Errorf("%s: it starts", name)
			continue
		}
		b.Close()
	}
	first := startTiers(t, stores.Config{Disk: dir, DiskBytes: 16 << 20})
	b := backend(t, cpu.Config{KVTokens: tierPool, PageTokens: 16})
	if s, err := Start(Config{Backend: b, Tiers: Tiers{Open: stores.Config{Disk: dir, DiskBytes: 16 << 20, ExtentPages: 4, Required: true}.Open}}); err == nil {
		s.Close()
		t.Error("two systems opened one directory")
	}
	b.Close()
	second := startTiers(t, stores.Config{HostBytes: 8 << 20, Disk: dir, DiskBytes: 16 << 20})
	if st := closeTiers(t, second); len(st.Tiers) != 1 || st.Tiers[0].Tier != kv.TierHost {
		t.Errorf("a system whose disk is in use has the tiers %+v, want host memory", st.Tiers)
	}
	third := startTiers(t, stores.Config{Disk: dir, DiskBytes: 16 << 20})
	tierAsk(t, third, 0)
	if st := closeTiers(t, third); len(st.Tiers) != 0 {
		t.Errorf("a system whose only tier is in use has the tiers %+v", st.Tiers)
	}
	closeTiers(t, first)
}

// TestTiersClose: Close with reads and writes in flight, and after the device was lost, leaks
// nothing.
func TestTiersClose(t *testing.T) {
	for _, lost := range []bool{false, true} {
		b, err := sim.Open(sim.Config{PageTokens: 16, Pages: tierPool / 16, Vocab: nano.Config().Vocab, Faults: sim.Faults{Device: func(seq uint64) error {
			if lost && seq == 40 {
				return fmt.Errorf("planted")
			}
			return nil
		}}})
		if err != nil {
			t.Fatal(err)
		}
		in := &storetest.Injector{}
		s := start(t, Config{Backend: b, Tiers: Tiers{Stores: []mempool.Store{tierStore(t, kv.TierDisk, t.TempDir(), b.Info(), in)}, Write: tiering.Through, Flush: time.Second, TokenSeconds: 1}}, cpu.Config{})
		for i := range 24 {
			stream, err := s.Open(Request{Tokens: tierPrompt(i % 8), MaxTokens: 3, IgnoreEOS: true})
			if err != nil {
				break // the device is lost
			}
			drain(t, stream)
		}
		s.Close()
		if st, err := s.Stats(patience(t)); err != nil || st.LeakedPages != 0 {
			t.Errorf("%v, %d pages leaked", err, st.LeakedPages)
		}
	}
}

// TestTiersLateRequest: a request that reaches the scheduler when the last writes have begun is not
// run: it would evict KV that these writes have yet to read.
func TestTiersLateRequest(t *testing.T) {
	b, err := sim.Open(sim.Config{PageTokens: 16, Pages: tierPool / 16, Vocab: nano.Config().Vocab})
	if err != nil {
		t.Fatal(err)
	}
	in := &storetest.Injector{}
	s := start(t, Config{Backend: b, Tiers: Tiers{Stores: []mempool.Store{tierStore(t, kv.TierDisk, t.TempDir(), b.Info(), in)}}}, cpu.Config{})
	tierAsk(t, s, 0)
	late, err := s.requests.enter(1)
	if err != nil {
		t.Fatal(err)
	}
	in.Plant(storetest.AtWrite, storetest.Slow, 1, true)
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	for begun := false; !begun; {
		if begun, err = ask(patience(t), s, func(a *schedulerActor) bool { return a.last != nil }); err != nil {
			t.Fatal(err)
		}
	}
	s.submit(late, Request{MaxTokens: 3, Samples: 1}, tierPrompt(1), nil)
	st, err := s.Stats(patience(t))
	if err != nil || st.Scheduler.Requests != 1 {
		t.Errorf("%v, %d requests were accepted, want 1", err, st.Scheduler.Requests)
	}
	in.Clear()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}
