package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// IndexKind is which block index is measured.
type IndexKind uint8

// The indexes. With more than one thread the radix index is one shard behind a lock.
const (
	IndexRadix   IndexKind = iota // kvindex.Index
	IndexSharded                  // kvindex.Sharded
)

var indexKinds = enum.New[IndexKind]("bench", "index", "radix", "sharded")

func (k IndexKind) String() string { return indexKinds.Name(k) }

// UnmarshalText takes the names that String gives.
func (k *IndexKind) UnmarshalText(text []byte) error { return indexKinds.Read(k, text) }

// IndexConfig sizes a replay of a trace on a block index. The zero value serves.
type IndexConfig struct {
	Kind        IndexKind
	By          kvindex.Sharding // of the sharded index
	Shards      int              // of the sharded index. Default kvindex's
	Workers     int              `default:"8" min:"1" max:"4096"`   // request i goes to worker i mod Workers. Default 8
	BlockTokens int              `default:"16" min:"1" max:"1<<24"` // tokens per block. Default 16
	Threads     int              `default:"1" min:"1" max:"256"`    // that hash, find and store. Default 1
	Passes      int              `default:"5" min:"1" max:"1<<20"`  // timed replays, whose medians are reported. Default 5
}

func (c IndexConfig) withDefaults() IndexConfig { return bounds.Fill(c) }

// sharded is the configuration of a sharded index; one shard if it is not asked for.
func (c IndexConfig) sharded() kvindex.ShardedConfig {
	if c.Kind == IndexRadix {
		return kvindex.ShardedConfig{Shards: 1}
	}
	return kvindex.ShardedConfig{Shards: c.Shards, By: c.By}
}

// validate reports all faults at once, by field and value.
func (c IndexConfig) validate(t *Trace) error {
	errs := []error{bounds.Check("bench", c), c.sharded().Validate()}
	if !indexKinds.Has(c.Kind) {
		errs = append(errs, fmt.Errorf("bench: Kind is %v, want %s", c.Kind, indexKinds.Names()))
	}
	if t.Requests() == 0 {
		errs = append(errs, errors.New("bench: the trace has no requests, nothing can be measured"))
	}
	return errors.Join(errs...)
}

// Steps is how often a [PlayIndex] of this configuration calls progress.
func (c IndexConfig) Steps() int { return 1 + c.withDefaults().Passes }

// IndexSummary is what a replay came to and what it cost. The counts are the same
// in every run, whatever the index and the threads.
type IndexSummary struct {
	Requests    int     `json:"requests"`
	Blocks      int     `json:"blocks"`              // full ones, of all requests
	Best        int     `json:"best_overlap_blocks"` // sum of each request's longest overlap with any worker
	Own         int     `json:"own_overlap_blocks"`  // sum of its overlap with the worker that it goes to
	Stored      int     `json:"stored_blocks"`       // that workers lacked
	StoreEvents int     `json:"store_events"`        // requests of which something was stored
	FindP50     float64 `json:"find_ns_per_request_p50"`
	FindP99     float64 `json:"find_ns_per_request_p99"`
	StorePerReq float64 `json:"store_ns_per_request"` // mean, the check of the hashes included
	HashPerTok  float64 `json:"hash_ns_per_token"`    // local hashes
	BlocksPerS  float64 `json:"blocks_per_s"`         // of wall time: all is hashed, found and stored
	BytesPerBlk float64 `json:"bytes_per_worker_block"`
}

// counts are the part of a summary that may not differ.
func (s IndexSummary) counts() [6]int {
	return [6]int{s.Requests, s.Blocks, s.Best, s.Own, s.Stored, s.StoreEvents}
}

// PlayIndex replays a trace: each request is hashed and looked up, then what its
// worker lacks is stored for it. progress, if not nil, is called after each replay.
// Bad sizes and the end of ctx are errors.
//
// The first replay counts and measures memory; then come the timed ones. With
// several threads the requests of a branch stay in order, so that every request
// finds what it would find with one: see indexPlay.
func PlayIndex(ctx context.Context, t *Trace, cfg IndexConfig, progress func()) (*IndexSummary, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(t); err != nil {
		return nil, err
	}
	if progress == nil {
		progress = func() {}
	}
	own := heapBytes()
	p, err := newIndexPlay(ctx, t, cfg)
	if err != nil {
		return nil, err
	}
	p.room(0) // what times take is not the index
	s, _, err := p.run()
	if err != nil {
		return nil, err
	}
	index := p.index
	p = nil
	if s.Stored > 0 {
		s.BytesPerBlk = float64(heapBytes()-own) / float64(s.Stored)
	}
	runtime.KeepAlive(index)
	progress()
	return &s, s.time(ctx, t, cfg, progress)
}

// time fills in the times.
func (s *IndexSummary) time(ctx context.Context, t *Trace, cfg IndexConfig, progress func()) error {
	var p50, p99, store, hash, wall []float64
	for range cfg.Passes {
		clock := calibrate()
		p, err := newIndexPlay(ctx, t, cfg)
		if err != nil {
			return err
		}
		p.room(t.Requests())
		runtime.GC()
		again, took, err := p.run()
		if err != nil {
			return err
		}
		if again.counts() != s.counts() {
			panic(fmt.Sprintf("bench: replays of one trace differ: %v, then %v", s.counts(), again.counts()))
		}
		finds, stores, hashes := p.times()
		slices.Sort(finds)
		p50 = append(p50, max(0, float64(finds[nearestRank(len(finds), 50)])-clock))
		p99 = append(p99, max(0, float64(finds[nearestRank(len(finds), 99)])-clock))
		store = append(store, float64(stores.total(clock))/float64(s.Requests))
		hash = append(hash, float64(hashes.total(clock))/float64(max(1, t.Tokens())))
		wall = append(wall, took.Seconds())
		progress()
	}
	middle := func(v []float64) float64 {
		slices.Sort(v)
		return v[len(v)/2]
	}
	s.FindP50, s.FindP99, s.StorePerReq, s.HashPerTok = middle(p50), middle(p99), middle(store), middle(hash)
	s.BlocksPerS = float64(s.Blocks) / middle(wall)
	return nil
}

// blockIndex is what both indexes do.
type blockIndex interface {
	Find(locals []kv.LocalHash, dst []kvindex.Overlap) []kvindex.Overlap
	Store(h kv.Rank, run kvindex.Run) (stored int, err error)
}

// newIndex makes an empty index.
func (c IndexConfig) newIndex() (blockIndex, error) {
	if c.Kind == IndexRadix && c.Threads == 1 {
		return kvindex.New(kvindex.Config{})
	}
	return kvindex.NewSharded(c.sharded())
}
