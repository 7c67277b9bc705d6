package dirmem

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/coppice-llm/coppice/internal/mempool/blockio"
	"github.com/coppice-llm/coppice/internal/mempool/ops"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// Store is the shared tier. It implements mempool.Store.
type Store struct {
	cfg     Config
	dir     string // of the identity
	info    mempool.StoreInfo
	format  mempool.Format
	queue   *ops.Queue
	buffers [][]byte // one for each worker: a record
	keeper  keeper

	mu      sync.Mutex
	known   map[mempool.Key]int64 // sizes of the records seen
	bytes   int64                 // of them
	writing int64                 // bytes of records that are being written
	changed map[mempool.Key]bool  // since the last look began
	pending map[mempool.Key]*ops.Job

	stop   chan struct{}
	rounds sync.WaitGroup
}

// Open opens the directory of an identity below c.Dir.
func Open(c Config) (*Store, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	dir, others, err := blockio.Place(c.Dir, blockio.Shared, &c.Identity, nil)
	if err == nil {
		err = os.MkdirAll(filepath.Join(dir, "tmp"), blockio.DirMode)
	}
	if err != nil {
		return nil, fmt.Errorf("dirmem: %w", err)
	}
	s := &Store{cfg: c, dir: dir, format: c.format(), known: map[mempool.Key]int64{}, changed: map[mempool.Key]bool{},
		pending: map[mempool.Key]*ops.Job{}, stop: make(chan struct{})}
	s.info = mempool.StoreInfo{Tier: kv.TierShared, Identity: c.Identity, CapacityBytes: c.Bytes, SlotBytes: s.format.SlotBytes(),
		MaxOps: c.MaxOps, Shared: true, Durable: true, Others: others, Direct: blockio.Direct(filepath.Join(dir, blockio.IdentityFile))}
	for range c.Workers + 1 { // the last is the keeper's
		b, err := blockio.Alloc(s.info.SlotBytes)
		if err != nil {
			return nil, errors.Join(err, s.free())
		}
		s.buffers = append(s.buffers, b)
	}
	s.keeper.init(s)
	s.queue = ops.New(c.Workers, c.MaxOps, s.run)
	if !c.quiet {
		s.rounds.Add(1)
		go s.keep()
	}
	return s, nil
}

// keep looks at the directory, at once and then every Round.
func (s *Store) keep() {
	defer s.rounds.Done()
	tick := time.NewTicker(s.cfg.Round)
	defer tick.Stop()
	for {
		_ = s.keeper.round() // what fails is tried again next time
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
	}
}

func (s *Store) free() error {
	var errs []error
	for _, b := range s.buffers {
		errs = append(errs, blockio.Free(b))
	}
	return errors.Join(errs...)
}

// Info implements mempool.Store.
func (s *Store) Info() mempool.StoreInfo { return s.info }

// Ready implements mempool.Store.
func (s *Store) Ready() <-chan struct{} { return s.queue.Ready() }

// Poll implements mempool.Store.
func (s *Store) Poll(dst []mempool.Done) []mempool.Done { return s.queue.Poll(dst) }

// Cancel implements mempool.Store.
func (s *Store) Cancel(id mempool.OpID) { s.queue.Cancel(id) }

// Contents implements mempool.Store: none. What the directory holds is found by Probe, for
// the prompts that ask for it: others' records may be many, and have to be read for their
// tokens.
func (s *Store) Contents(dst []mempool.Extent) []mempool.Extent { return dst }

// Metrics implements mempool.Store: as of the last look at the directory, and what this
// process did since.
func (s *Store) Metrics() mempool.StoreMetrics {
	m := s.queue.Metrics()
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Extents, m.Bytes, m.CapacityBytes = len(s.known), s.bytes, s.cfg.Bytes
	return m
}

// Submit implements mempool.Store.
func (s *Store) Submit(op mempool.Op) error {
	if err := s.info.Identity.CheckOp(&op); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	j, err := s.queue.Submit(op)
	if err == nil && op.Kind == mempool.Put {
		if k := op.Extent.Key; s.pending[k] == nil || s.pending[k].HasLeft() {
			s.pending[k] = j
		}
		for k, p := range s.pending { // those that were given up while they waited
			if len(s.pending) > 2*s.info.MaxOps && p.HasLeft() {
				delete(s.pending, k)
			}
		}
	}
	return err
}

// Close implements mempool.Store. It gives the lease back.
func (s *Store) Close() error {
	if !s.queue.Close() {
		return nil
	}
	close(s.stop)
	s.rounds.Wait()
	return errors.Join(s.keeper.release(), s.free())
}

// path is where a record lies.
func (s *Store) path(k mempool.Key) string {
	name := k.String()
	return filepath.Join(s.dir, name[:2], name+suffix)
}

const suffix = ".kvx"

// learn notes that a record is there, or with size 0 that it is not.
func (s *Store) learn(k mempool.Key, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes += size - s.known[k]
	if s.known[k] = size; size == 0 {
		delete(s.known, k)
	}
	s.changed[k] = true
}
