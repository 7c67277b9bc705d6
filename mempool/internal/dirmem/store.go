package dirmem

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/internal/ops"
	"github.com/coppice-llm/coppice/mempool/internal/record"
)

// Store is the shared tier. It implements mempool.Store.
type Store struct {
	*ops.Queue
	cfg     Config
	dir     string // directory of the identity
	info    mempool.StoreInfo
	format  record.Format
	buffers [][]byte // room for a record, one for each worker and the last for the keeper
	keeper  keeper
	quota   atomic.Int64 // most bytes in the directory

	mu      sync.Mutex
	known   map[record.Name]int64  // file sizes of the known records
	bytes   int64                  // sum of known
	writing int64                  // bytes of records that are being written
	changed map[record.Name]bool   // records learnt about since the last listing began
	hidden  map[record.Name]hidden // records that this process failed to read; none is in known

	stop   chan struct{}
	rounds sync.WaitGroup
}

// hidden is a record that counts as missing in this process, until a time.
type hidden struct {
	until time.Time
	size  int64 // of its file, for the quota
}

// Open opens the directory of c.Identity below c.Dir, creating it if needed, and starts the rounds.
func Open(c Config) (*Store, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	dir, others, err := blockio.Place(c.Dir, blockio.Shared, &c.Identity, c.Sealer, nil)
	if err == nil {
		err = os.MkdirAll(filepath.Join(dir, "tmp"), blockio.DirMode)
	}
	if err != nil {
		return nil, fmt.Errorf("dirmem: %w", err)
	}
	s := &Store{cfg: c, dir: dir, format: record.FormatOf(&c.Identity, c.Sealer), known: map[record.Name]int64{}, changed: map[record.Name]bool{},
		hidden: map[record.Name]hidden{}, stop: make(chan struct{})}
	s.info = mempool.StoreInfo{Tier: kv.TierShared, Identity: c.Identity, Dir: c.Dir, CapacityBytes: c.Bytes, SlotBytes: s.format.SlotBytes(),
		MaxOps: c.MaxOps, Shared: true, Durable: true, Others: others, Direct: blockio.Direct(filepath.Join(dir, blockio.IdentityFile))}
	if s.info.Warnings, err = s.agree(); err != nil {
		return nil, fmt.Errorf("dirmem: %w", err)
	}
	s.info.Warnings = slices.Concat(s.info.Warnings, blockio.Exposed(c.Dir, dir), blockio.Counterpart(c.Dir, c.Identity))
	s.info.CapacityBytes = s.quota.Load()
	for range c.Workers + 1 { // the last is the keeper's
		b, err := blockio.Alloc(s.info.SlotBytes)
		if err != nil {
			return nil, errors.Join(err, s.free())
		}
		s.buffers = append(s.buffers, b)
	}
	s.keeper.init(s)
	s.Queue = ops.New(s.info, c.Workers, s.run)
	if !c.quiet {
		s.rounds.Add(1)
		go s.runRounds()
	}
	return s, nil
}

// runRounds runs a round at once and then every Config.Round.
func (s *Store) runRounds() {
	defer s.rounds.Done()
	tick := time.NewTicker(s.cfg.Round)
	defer tick.Stop()
	for failing := false; ; {
		err := s.keeper.round() // the next round repeats what failed
		if (err != nil) != failing && s.cfg.Upkeep != nil {
			s.cfg.Upkeep(err)
		}
		failing = err != nil
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

// Contents implements mempool.Store. It appends nothing: there may be very many records of other
// processes, and each would have to be read for its tokens. Probe finds those that a prompt needs.
func (s *Store) Contents(dst []mempool.Extent) []mempool.Extent { return dst }

// Metrics implements mempool.Store. Extents and Bytes are those of the last listing of the
// directory, updated by this process's own operations.
func (s *Store) Metrics() mempool.StoreMetrics {
	m := s.Queue.Metrics()
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Extents, m.Bytes, m.CapacityBytes = len(s.known), s.bytes, s.quota.Load()
	return m
}

// Close implements mempool.Store. It releases the lease.
func (s *Store) Close() error {
	if !s.End() {
		return nil
	}
	close(s.stop)
	s.rounds.Wait()
	return errors.Join(s.keeper.release(), s.free())
}

// path returns the path of a record's file.
func (s *Store) path(n record.Name) string {
	name := n.String()
	return filepath.Join(s.dir, name[:2], name+suffix)
}

// newName returns the name of a new record of k.
func (s *Store) newName(k mempool.Key) (n record.Name) {
	for n = range s.format.Names(k) {
		break
	}
	return n
}

// name returns the name of the record of k. If it could have several, from several secrets, that is the
// first one with a file that is not hidden, or else that of a new record.
func (s *Store) name(k mempool.Key) record.Name {
	if len(s.cfg.Sealer.IDs()) > 1 {
		for n := range s.format.Names(k) {
			if _, err := blockio.Stat(s.path(n), s.cfg.Inject); err == nil && !s.hides(n) {
				return n
			}
		}
	}
	return s.newName(k)
}

const suffix = ".kvx"
