package actors

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/stores"
	"github.com/coppice-llm/coppice/scheduler"
)

// owned is a backend that checks that no batch names a page of another System.
type owned struct {
	engine.Backend
	t     *testing.T
	pool  *Pool
	owner mempool.Owner
}

func (b *owned) check(when string, pages []kv.PageID) {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	for _, id := range pages {
		if id != kv.NoPage && !b.pool.division.Owns(b.owner, id) {
			b.t.Errorf("%s: page %d is in a batch of %d, whose it is not", when, id, b.owner)
		}
	}
}

func (b *owned) Submit(x *engine.Batch) (engine.Ticket, error) {
	var pages []kv.PageID
	for i := range x.Rows {
		pages = append(pages, x.Rows[i].Pages...)
	}
	for _, c := range x.Copies {
		pages = append(pages, c.Src, c.Dst)
	}
	b.check("before", pages)
	t, err := b.Backend.Submit(x)
	if err != nil {
		return nil, err
	}
	return ownedTicket{t, b, pages}, nil
}

type ownedTicket struct {
	engine.Ticket
	b     *owned
	pages []kv.PageID
}

func (t ownedTicket) Result() (*engine.Result, error) {
	t.b.check("after", t.pages)
	return t.Ticket.Result()
}

// ownedMover is owned for moves: their pages must be the System's until the moves have ended.
type ownedMover struct {
	*owned
	engine.Mover
	mu    sync.Mutex
	pages map[engine.MoveID][]kv.PageID
}

func (b *ownedMover) Move(m *engine.Move, memory [][]byte) error {
	b.check("before a move", m.Pages)
	b.mu.Lock()
	b.pages[m.ID] = slices.Clone(m.Pages)
	b.mu.Unlock()
	return b.Mover.Move(m, memory)
}

func (b *ownedMover) Moved(dst []engine.Moved) []engine.Moved {
	n := len(dst)
	dst = b.Mover.Moved(dst)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range dst[n:] {
		b.check("after a move", b.pages[m.ID])
	}
	return dst
}

// share starts Systems with lower tiers on one pool with the given number of pages.
func share(t *testing.T, systems, pages int, cfg scheduler.Config, tiers Tiers) (*Pool, []*System) {
	t.Helper()
	const pageTokens = 4
	pool, err := NewPool(pages, systems)
	if err != nil {
		t.Fatal(err)
	}
	var all []*System
	for i := range systems {
		b := &owned{Backend: backend(t, cpu.Config{KVTokens: pages * pageTokens, PageTokens: pageTokens}), t: t, pool: pool, owner: mempool.Owner(i)}
		m := &ownedMover{owned: b, Mover: b.Backend.(engine.Mover), pages: map[engine.MoveID][]kv.PageID{}}
		all = append(all, start(t, Config{Backend: m, Pool: pool, Scheduler: cfg, Tiers: tiers}, cpu.Config{}))
	}
	return pool, all
}

func (p *Pool) held(o mempool.Owner) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.division.Held(o)
}

func (p *Pool) verify(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.division.Check(); err != nil {
		t.Error(err)
	}
}

// numbered returns prompt number i of n tokens; no two begin alike.
func numbered(i, n int) []kv.Token {
	tokens := make([]kv.Token, n)
	for j := range tokens {
		tokens[j] = kv.Token(1 + (i+j*j)%100)
	}
	return tokens
}

// TestSharedPool: one System fills the pool with its cache; a second System then gets its
// share, and both produce the tokens that they would produce alone.
func TestSharedPool(t *testing.T) {
	pool, systems := share(t, 2, 64, scheduler.Config{MaxInflight: 2, LeaseHighPages: 64}, Tiers{})
	alone := start(t, Config{}, cpu.Config{})
	ask := func(s *System, i, n int) []kv.Token {
		tokens := numbered(i, n)
		got, _, e := drain(t, open(t, s, Request{Tokens: tokens, MaxTokens: 8}))
		if e.Err != nil {
			t.Fatalf("request %d: %v", i, e.Err)
		}
		return got
	}
	a, b := systems[0], systems[1]
	for i := range 8 {
		ask(a, i, 60)
	}
	if n := pool.held(0); n <= pool.SharePages() {
		t.Errorf("alone it has %d pages, no more than its share of %d", n, pool.SharePages())
	}
	most := 4*pool.SharePages() - 8
	if got, want := ask(b, 1, most), ask(alone, 1, most); !slices.Equal(got, want) {
		t.Errorf("tokens %v, want %v", got, want)
	}
	if n := pool.held(1); n == 0 || n > pool.SharePages() {
		t.Errorf("the other one has %d pages, its share is %d", n, pool.SharePages())
	}
	long := make([]kv.Token, 4*pool.SharePages()+1)
	if s, err := a.Open(Request{Tokens: long}); err == nil {
		if _, _, e := drain(t, s); e.Err == nil || !strings.Contains(e.Err.Error(), "larger than the KV pool") {
			t.Errorf("a request larger than the share: %v", e.Err)
		}
	}
	conserve(t, a)
	conserve(t, b)
	pool.verify(t)
}

// TestSharedPoolUnderLoad: three Systems, with and without lower tiers, each under a load that
// needs more than its share, until all requests have ended; then they close one by one.
func TestSharedPoolUnderLoad(t *testing.T) {
	for _, inflight := range []int{1, 2} {
		for _, tiers := range []Tiers{{}, {Open: stores.Config{HostBytes: 4 << 20, ExtentPages: 2}.Open}} {
			sharedLoad(t, scheduler.Config{MaxInflight: inflight, MaxRunning: 6}, tiers)
		}
	}
}

func sharedLoad(t *testing.T, cfg scheduler.Config, tiers Tiers) {
	pool, systems := share(t, 3, 60, cfg, tiers)
	var callers sync.WaitGroup
	for n, s := range systems {
		for c := range 6 {
			callers.Go(func() {
				for i := range 6 {
					tokens := numbered(i+10*n, 10+(7*i+11*c)%40)
					stream, err := s.Open(Request{Tokens: tokens, MaxTokens: 1 + (i*c)%20})
					if err != nil {
						t.Error(err)
						return
					}
					if (i+c)%5 == 0 {
						stream.Abort(nil)
					}
					drain(t, stream)
				}
			})
		}
	}
	callers.Wait()
	for _, s := range systems {
		credits(t, s)
		conserve(t, s)
	}
	pool.verify(t)
	written := uint64(0)
	for o, s := range systems {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if n := pool.held(mempool.Owner(o)); n != 0 {
			t.Errorf("%d pages are held after Close", n)
		}
		pool.verify(t)
		if st, err := s.Stats(patience(t)); err == nil && len(st.Tiers) > 0 {
			written += st.Tiers[0].Writes
		}
	}
	if written == 0 && tiers.Open != nil {
		t.Error("nothing was written to host memory")
	}
}
