package bench

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// IndexKind selects the block index to measure.
type IndexKind uint8

// The indexes. With more than one thread, IndexRadix is a Sharded index of one shard.
const (
	IndexRadix   IndexKind = iota // kvindex.Index
	IndexSharded                  // kvindex.Sharded
)

var indexKinds = enum.New[IndexKind]("bench", "index", "radix", "sharded")

func (k IndexKind) String() string { return indexKinds.Name(k) }

// UnmarshalText accepts the names that String returns.
func (k *IndexKind) UnmarshalText(text []byte) error { return indexKinds.Read(k, text) }

// IndexConfig sizes a replay of a trace on a block index. The zero value works. Its tags state the
// defaults, the bounds, and the flags of coppice bench index.
type IndexConfig struct {
	Workers     int       `default:"8" min:"1" max:"4096" help:"Number of workers; request i goes to worker i modulo this number."`
	BlockTokens int       `default:"16" min:"1" max:"1<<24" help:"Tokens per block."`
	Kind        IndexKind `name:"index" placeholder:"radix" help:"Index: radix or sharded. Default: radix."`
	Shards      int       `default:"8" min:"1" help:"Number of shards of the sharded index."`
	Threads     int       `default:"1" min:"1" max:"256" help:"Threads that hash, find and store. Their number changes times only, not results."`
	Passes      int       `default:"5" min:"1" max:"1<<20" help:"Number of timed replays; the report shows medians."`
}

// sharded returns the configuration of the sharded index: one shard for IndexRadix.
func (c IndexConfig) sharded() kvindex.ShardedConfig {
	if c.Kind == IndexRadix {
		return kvindex.ShardedConfig{Shards: 1}
	}
	return kvindex.ShardedConfig{Shards: c.Shards}
}

// validate reports all faults at once, by field and value.
func (c IndexConfig) validate(t *Trace) error {
	faults := bounds.Faults{Owner: "bench: "}
	faults.Add(bounds.Check("bench", c), c.sharded().Validate())
	faults.If(!indexKinds.Has(c.Kind), "Kind is %v, want %s", c.Kind, indexKinds.Names())
	if t.Requests() == 0 {
		faults.Add(errNoRequests)
	}
	return faults.Err()
}

// Steps returns how often a [PlayIndex] of this configuration calls progress.
func (c IndexConfig) Steps() int { return 1 + bounds.Fill(c).Passes }

// IndexSummary holds the counts and costs of a replay. The counts are the same in
// every run, for every index and number of threads. Times are medians over Passes.
type IndexSummary struct {
	Requests    int     `json:"requests" row:"requests|%d"`
	Blocks      int     `json:"blocks" row:"blocks|%d"`                                       // full blocks of all requests
	Best        int     `json:"best_overlap_blocks" row:"best overlap|%d blocks"`             // sum over requests of the longest overlap with any worker
	Own         int     `json:"own_overlap_blocks" row:"overlap of the own worker|%d blocks"` // sum over requests of the overlap with the request's own worker
	Stored      int     `json:"stored_blocks" row:"stored|%d blocks"`                         // blocks that the request's worker lacked
	StoreEvents int     `json:"store_events" row:"stored in|%d events"`                       // requests with blocks to store
	FindP50     float64 `json:"find_ns_per_request_p50" row:"find, median|%.0f ns a request"`
	FindP99     float64 `json:"find_ns_per_request_p99" row:"find, 99 %|%.0f ns a request"`
	StorePerReq float64 `json:"store_ns_per_request" row:"store, mean|%.0f ns a request"`  // mean over all requests, with the check of the hashes
	HashPerTok  float64 `json:"hash_ns_per_token" row:"hashing|%.2f ns a token"`           // local hashes
	BlocksPerS  float64 `json:"blocks_per_s" row:"hashed, found and stored|%.0f blocks/s"` // by wall time
	BytesPerBlk float64 `json:"bytes_per_worker_block" row:"memory|%.1f bytes for a block of a worker"`
}

// Rows returns the figures, one a row.
func (s *IndexSummary) Rows() (rows [][]string, legend string) { return rowsOf(s), "" }

// counts returns the part of a summary that must be equal in all replays.
func (s IndexSummary) counts() [6]int {
	return [6]int{s.Requests, s.Blocks, s.Best, s.Own, s.Stored, s.StoreEvents}
}

// PlayIndex replays a trace: each request is hashed and looked up, then the blocks that its worker
// lacks are stored for that worker. progress, if not nil, is called after each replay. Bad sizes
// and the end of ctx are errors.
//
// The first replay counts and measures memory; cfg.Passes timed replays follow. With several
// threads, requests that begin with the same block keep their order, so every request finds the
// same overlaps as with one thread: see indexPlay.
func PlayIndex(ctx context.Context, t *Trace, cfg IndexConfig, progress func()) (*IndexSummary, error) {
	cfg = bounds.Fill(cfg)
	if err := cfg.validate(t); err != nil {
		return nil, err
	}
	progress = orNothing(progress)
	own := heapBytes()
	p, err := newIndexPlay(ctx, t, cfg)
	if err != nil {
		return nil, err
	}
	p.room(0) // no room for times: they would count as memory of the index
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

// time runs the timed replays and fills in the medians. It panics if a replay has other counts
// than s, the result of the first replay.
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
	s.FindP50, s.FindP99, s.StorePerReq, s.HashPerTok = median(p50), median(p99), median(store), median(hash)
	s.BlocksPerS = float64(s.Blocks) / median(wall)
	return nil
}

// blockIndex is the common interface of kvindex.Index and kvindex.Sharded.
type blockIndex interface {
	Find(hashes []kv.BlockHash, dst []kvindex.Overlap) []kvindex.Overlap
	Store(h kv.Rank, run kvindex.Run) (stored int, err error)
}

// newIndex makes an empty index.
func (c IndexConfig) newIndex() (blockIndex, error) {
	if c.Kind == IndexRadix && c.Threads == 1 {
		return kvindex.New(kvindex.Config{})
	}
	return kvindex.NewSharded(c.sharded())
}
