package actors

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/carrier"
	"github.com/coppice-llm/coppice/mempool/tiering"
)

// slowInbox is a mailbox whose senders wait until it is open.
type slowInbox struct {
	sent chan struct{} // has a value for each message
	open chan struct{}
}

func (b *slowInbox) SendUserMessage(*actor.PID, any) {
	b.sent <- struct{}{}
	<-b.open
}
func (b *slowInbox) SendSystemMessage(*actor.PID, any) {}
func (b *slowInbox) Stop(*actor.PID)                   {}

// lateStore is a store that ends its one operation while it is polled for the first time, so that
// only the next Poll reports the end.
type lateStore struct {
	mempool.Store
	info  mempool.StoreInfo
	op    mempool.OpID
	ready chan struct{}
	done  []mempool.Done
	late  func() // called in the first Poll, when the operation has ended
}

func (s *lateStore) Info() mempool.StoreInfo           { return s.info }
func (s *lateStore) Ready() <-chan struct{}            { return s.ready }
func (s *lateStore) Submit(op mempool.Op) error        { s.op = op.ID; return nil }
func (s *lateStore) Cancel(mempool.OpID, error)        {}
func (s *lateStore) Metrics() (m mempool.StoreMetrics) { return m }
func (s *lateStore) Close() error                      { return nil }
func (s *lateStore) Poll(dst []mempool.Done) []mempool.Done {
	dst = append(dst, s.done...)
	s.done = nil
	if s.late != nil {
		s.done = []mempool.Done{{ID: s.op, Kind: mempool.Drop}}
		s.ready <- struct{}{}
		s.late()
		s.late = nil
	}
	return dst
}

// The goroutine that watches the carrier must not take the value of Ready for which the carrier's
// Close waits, even if it is late itself.
func TestCloseIsNotMissed(t *testing.T) {
	for range 10 { // whether a value is taken is chance, one in two
		b, err := sim.Open(sim.Config{PageTokens: 16, Pages: 16})
		if err != nil {
			t.Fatal(err)
		}
		info := b.Info()
		id := identity(&info)
		inbox := &slowInbox{make(chan struct{}, 9), make(chan struct{})}
		open := sync.OnceFunc(func() { close(inbox.open) })
		pid, _ := shared().ProcessRegistry.Add(inbox, shared().ProcessRegistry.NextId())
		store := &lateStore{info: mempool.StoreInfo{Tier: kv.TierDisk, Identity: id, MaxOps: 1}, ready: make(chan struct{}, 1)}
		c, err := carrier.New(carrier.Config{Backend: b, Layout: id.Layout, Stores: []mempool.Store{store}, Buffers: 1})
		if err != nil {
			t.Fatal(err)
		}
		sys := &System{engine: &process{pid: pid}, tiers: &hierarchy{carrier: c}, started: time.Now()}
		sys.tiers.until.Store(int64(time.Hour)) // the carrier does not give up before the test does
		a := newEngineActor(sys, b)
		x := id.Layout.AppendExtents(nil, kv.Namespace{}, slices.Repeat([]kv.Token{1}, id.Layout.ExtentTokens()), nil)[0]
		c.Begin(&tiering.Move{ID: 1, Kind: tiering.Drop, From: kv.TierDisk, Extent: x})
		c.Probe(1, kv.TierShared, nil, 0) // is answered at once
		<-inbox.sent                      // the watching goroutine sends that news, until the inbox is open
		store.late = func() {
			for len(c.Ready()) == 0 {
				runtime.Gosched()
			}
			open()
			for range 1000 { // time to take the value
				runtime.Gosched()
			}
		}
		released := make(chan struct{})
		go func() { a.release(); close(released) }()
		<-a.stop
		for range 1000 { // time for Close
			runtime.Gosched()
		}
		open()
		select {
		case <-released:
		case <-time.After(time.Minute):
			t.Fatal("the carrier's Close waits forever")
		}
		shared().ProcessRegistry.Remove(pid)
	}
}
