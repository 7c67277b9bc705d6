package bench

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// AnalyzeConfig says what to look for in a trace. The zero value serves.
type AnalyzeConfig struct {
	// BlockTokens is the block size. Default 16, or the trace's grain if that is
	// larger; it must be a multiple of it.
	BlockTokens int
	// PoolTokens is how many tokens of KV each worker holds. Default 0: unknown.
	PoolTokens int
	// Workers is how many there are to be. Default 0: unknown.
	Workers int
}

// Analysis is what a trace asks of a cache and of a router.
type Analysis struct {
	Form         string `json:"form"`
	Requests     int    `json:"requests"`
	PromptTokens int    `json:"prompt_tokens"`
	GrainTokens  int    `json:"grain_tokens"`

	ISL Lengths  `json:"isl"`
	OSL *Lengths `json:"osl,omitempty"` // where the trace has outputs

	Tree  PrefixTree   `json:"tree"` // at the block size asked for
	Sizes []PrefixTree `json:"sizes"`

	Buckets Buckets `json:"buckets"`
	Advice  Advice  `json:"advice"`
}

// Lengths are how long prompts or outputs are, in tokens; percentiles by nearest rank.
type Lengths struct {
	Mean float64 `json:"mean"`
	P50  int     `json:"p50"`
	P90  int     `json:"p90"`
	P99  int     `json:"p99"`
	Max  int     `json:"max"`
	// Histogram has the requests of [2^(i-1), 2^i) tokens at i, and those of none at
	// 0.
	Histogram []int `json:"histogram"`
}

// PrefixTree is the tree of all prompts' whole blocks at a block size. Its core
// are the nodes that two requests or more visit: what a cache can be of use for.
type PrefixTree struct {
	BlockTokens int `json:"block_tokens"`
	Blocks      int `json:"blocks"` // whole ones of all prompts
	Nodes       int `json:"nodes"`  // distinct ones
	// HitTokens are what a cache of all would have had, and HitRate their share of
	// all prompt tokens: the theoretical hit rate.
	HitTokens int     `json:"hit_tokens"`
	HitRate   float64 `json:"hit_rate"`

	CoreNodes int `json:"core_nodes"`
	// CoreDepth is how deep in the core prompts go, in tokens: the mean, and the
	// deepest. CoreShare is the mean over the mean prompt.
	CoreDepth    float64 `json:"core_depth_tokens"`
	CoreDepthMax int     `json:"core_depth_max_tokens"`
	CoreShare    float64 `json:"core_share_of_isl"`
	// CoreLeaves are the ends of the core: distinct contexts that come again.
	// CoreWidth is the most core nodes at one depth.
	CoreLeaves int `json:"core_leaves"`
	CoreWidth  int `json:"core_width"`
}

// Analyze reads a trace through. Its cost is that of hashing all blocks at some
// sizes. The error is about cfg.
func Analyze(s *Sequences, cfg AnalyzeConfig) (*Analysis, error) {
	if cfg.BlockTokens == 0 {
		cfg.BlockTokens = max(16, s.GrainTokens)
	}
	if err := cfg.validate(s); err != nil {
		return nil, err
	}
	a := &Analysis{Form: s.Form, Requests: s.Requests(), GrainTokens: s.GrainTokens}
	prompts, outputs := make([]int, s.Requests()), make([]int, s.Requests())
	for i, q := range s.requests {
		prompts[i], outputs[i] = q.prompt, q.output
		a.PromptTokens += q.prompt
	}
	a.ISL = lengthsOf(prompts)
	if s.Outputs {
		osl := lengthsOf(outputs)
		a.OSL = &osl
	}
	for _, size := range blockSizes(s.GrainTokens, cfg.BlockTokens) {
		t := s.tree(size)
		p := t.summary(a.PromptTokens, s.Requests())
		if size == cfg.BlockTokens {
			a.Tree, a.Buckets = p, t.buckets(s.Requests())
		}
		a.Sizes = append(a.Sizes, p)
	}
	a.Advice = a.advise(cfg)
	return a, nil
}

func (cfg *AnalyzeConfig) validate(s *Sequences) error {
	var errs []error
	if cfg.BlockTokens < 1 || cfg.BlockTokens > MaxRequestTokens || cfg.BlockTokens%s.GrainTokens != 0 {
		errs = append(errs, fmt.Errorf("bench: BlockTokens is %d, want a multiple of %d, of which the trace tells, up to %d", cfg.BlockTokens, s.GrainTokens, MaxRequestTokens))
	}
	if cfg.PoolTokens < 0 || cfg.Workers < 0 {
		errs = append(errs, fmt.Errorf("bench: PoolTokens is %d and Workers %d, want 0 (unknown) or more", cfg.PoolTokens, cfg.Workers))
	}
	if s.Requests() == 0 {
		errs = append(errs, errors.New("bench: the trace has no requests"))
	}
	return errors.Join(errs...)
}

// blockSizes are those that are compared, ascending: powers of two from 16 to 512,
// or the grain and its next multiples, and the one asked for.
func blockSizes(grain, asked int) []int {
	sizes := []int{asked}
	for size := 16; size <= 512; size *= 2 {
		if size%grain == 0 {
			sizes = append(sizes, size)
		}
	}
	if grain >= 512 {
		sizes = append(sizes, grain, 2*grain, 4*grain)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// lengthsOf sorts lengths in place and sums them up.
func lengthsOf(lengths []int) Lengths {
	slices.Sort(lengths)
	var l Lengths
	sum := 0
	for _, n := range lengths {
		sum += n
		for len(l.Histogram) <= bits.Len(uint(n)) {
			l.Histogram = append(l.Histogram, 0)
		}
		l.Histogram[bits.Len(uint(n))]++
	}
	at := func(percent int) int { return lengths[nearestRank(len(lengths), percent)] }
	l.Mean, l.P50, l.P90, l.P99, l.Max = float64(sum)/float64(len(lengths)), at(50), at(90), at(99), at(100)
	return l
}

// blockTree is the prefix tree of a trace's blocks. A parent is before its children.
type blockTree struct {
	blockTokens int
	nodes       []blockNode
	blocks      int
	hits        int // blocks that were there when they came
}

type blockNode struct {
	parent int32 // noBlock at the beginning of prompts
	depth  int32 // blocks, from 1
	visits int32
}

const noBlock = -1

func (s *Sequences) tree(blockTokens int) *blockTree {
	t := &blockTree{blockTokens: blockTokens}
	index := map[kv.BlockHash]int32{} // chained hashes: equal ones have equal prefixes
	for i := range s.requests {
		h := s.hasher(i, blockTokens)
		parent := int32(noBlock)
		for depth := range s.requests[i].whole(blockTokens) {
			hash := h.next()
			at, there := index[hash]
			if !there {
				at = int32(len(t.nodes))
				t.nodes = append(t.nodes, blockNode{parent: parent, depth: int32(depth) + 1})
				index[hash] = at
			} else {
				t.hits++
			}
			t.nodes[at].visits++
			t.blocks++
			parent = at
		}
	}
	return t
}

// summary measures the tree and its core.
func (t *blockTree) summary(promptTokens, requests int) PrefixTree {
	p := PrefixTree{BlockTokens: t.blockTokens, Blocks: t.blocks, Nodes: len(t.nodes), HitTokens: t.hits * t.blockTokens}
	var width []int
	inner := make([]bool, len(t.nodes)) // has a child in the core
	deep := 0                           // blocks of the core that prompts go through, of all of them
	for _, n := range t.nodes {
		if n.visits < 2 {
			continue
		}
		p.CoreNodes++
		deep += int(n.visits)
		if n.parent != noBlock {
			inner[n.parent] = true
		}
		for len(width) < int(n.depth) {
			width = append(width, 0)
		}
		width[n.depth-1]++
	}
	for i, n := range t.nodes {
		if n.visits >= 2 && !inner[i] {
			p.CoreLeaves++
		}
	}
	p.CoreDepthMax = len(width) * t.blockTokens
	if len(width) > 0 {
		p.CoreWidth = slices.Max(width)
	}
	p.CoreDepth = float64(deep*t.blockTokens) / float64(requests)
	if promptTokens > 0 {
		p.HitRate = float64(p.HitTokens) / float64(promptTokens)
		p.CoreShare = float64(deep*t.blockTokens) / float64(promptTokens)
	}
	return p
}

// Buckets are the kinds of prompts: the branches where prompts first part.
type Buckets struct {
	// StemTokens is the prefix that (nearly) all have, before they part.
	StemTokens int `json:"stem_tokens"`
	Branches   int `json:"branches"` // all there are below the stem
	// Largest are the largest, by share of all requests, largest first, as many as
	// hold bucketShare of them, but maxBuckets at most; Share is theirs together.
	Largest []float64 `json:"largest"`
	Share   float64   `json:"share"`
	// StandOut: they are few, hold most, and are of like size.
	StandOut bool `json:"stand_out"`
}

// What makes buckets stand out.
const (
	maxBuckets  = 16
	bucketShare = 0.9  // of the requests that the buckets hold together
	bucketRatio = 0.5  // of the largest, that the smallest has
	stemShare   = 0.95 // of the requests, that a stem has
)

// buckets walks down the stem and looks at its branches.
func (t *blockTree) buckets(requests int) Buckets {
	var b Buckets
	stem := int32(noBlock)
	for i, n := range t.nodes { // parents first, and no two siblings are of a stem
		if n.parent == stem && float64(n.visits) >= stemShare*float64(requests) {
			stem = int32(i)
			b.StemTokens += t.blockTokens
		}
	}
	var visits []int
	for _, n := range t.nodes {
		if n.parent == stem {
			visits = append(visits, int(n.visits))
		}
	}
	b.Branches = len(visits)
	slices.SortFunc(visits, func(x, y int) int { return y - x })
	b.choose(visits, requests)
	return b
}

// choose takes the largest branches; visits descend.
func (b *Buckets) choose(visits []int, requests int) {
	held := 0
	for i, n := range visits {
		if i == maxBuckets || float64(held) >= bucketShare*float64(requests) {
			break
		}
		held += n
		b.Largest = append(b.Largest, float64(n)/float64(requests))
	}
	b.Share = float64(held) / float64(requests)
	n := len(b.Largest)
	b.StandOut = n >= 2 && b.Share >= bucketShare && b.Largest[n-1] >= bucketRatio*b.Largest[0]
}
