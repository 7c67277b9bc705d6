package bench

import (
	"math/bits"
	"slices"

	"github.com/coppice-llm/coppice/internal/bounds"
)

// AnalyzeConfig sizes an [Analyze]. The zero value works.
type AnalyzeConfig struct {
	// BlockTokens is the block size for the tree, the buckets and the advice. It must
	// be a multiple of the trace's GrainTokens. Default 16, or GrainTokens if larger.
	BlockTokens int `placeholder:"16" min:"1" help:"Tokens per block, a multiple of the block size of the trace. Default: 16, or the trace's own."`
	PoolTokens  int `help:"Size of each worker's KV pool in tokens. Default: unknown."`
	Workers     int `help:"Number of workers in the fleet. Default: unknown."`
}

// Analysis describes how the requests of a trace share prefixes, and which cache and
// router settings follow from it.
type Analysis struct {
	Form         string `json:"form"`
	Requests     int    `json:"requests"`
	PromptTokens int    `json:"prompt_tokens"`
	GrainTokens  int    `json:"grain_tokens"`

	ISL Lengths  `json:"isl"`
	OSL *Lengths `json:"osl,omitempty"` // nil if the trace records no output lengths

	Tree  PrefixTree   `json:"tree"`  // at AnalyzeConfig.BlockTokens
	Sizes []PrefixTree `json:"sizes"` // one for each block size compared, ascending

	Buckets Buckets `json:"buckets"`
	Advice  Advice  `json:"advice"`
}

// Lengths summarises the lengths of prompts (ISL) or outputs (OSL), in tokens.
// Percentiles are by nearest rank.
type Lengths struct {
	Mean float64 `json:"mean"`
	P50  int     `json:"p50"`
	P90  int     `json:"p90"`
	P99  int     `json:"p99"`
	Max  int     `json:"max"`
	// Histogram counts requests: element i those of [2^(i-1), 2^i) tokens, element 0
	// those of no tokens. A request of 5 tokens counts in element 3, [4, 8).
	Histogram []int `json:"histogram"`
}

// PrefixTree describes the tree of the whole blocks of all prompts at one block size. A node is a
// distinct prefix. The core consists of the nodes that two or more requests visit: only blocks of
// these nodes can be cache hits.
type PrefixTree struct {
	BlockTokens int `json:"block_tokens"`
	Blocks      int `json:"blocks"` // whole blocks of all prompts, counted each time
	Nodes       int `json:"nodes"`  // distinct prefixes
	// HitTokens is the number of prompt tokens that a cache without limit would have found: Blocks
	// - Nodes blocks, since only the first visit of a node misses. HitRate is HitTokens over all
	// prompt tokens, the theoretical hit rate.
	HitTokens int     `json:"hit_tokens"`
	HitRate   float64 `json:"hit_rate"`

	CoreNodes int `json:"core_nodes"`
	// CoreDepth is the mean, over requests, of the tokens of a prompt that lie in the core;
	// CoreDepthMax is the maximum over requests. CoreShare is CoreDepth over the mean prompt
	// length.
	CoreDepth    float64 `json:"core_depth_tokens"`
	CoreDepthMax int     `json:"core_depth_max_tokens"`
	CoreShare    float64 `json:"core_share_of_isl"`
	// CoreLeaves is the number of core nodes without a child in the core: the distinct
	// contexts that are reused. CoreWidth is the most core nodes at one depth.
	CoreLeaves int `json:"core_leaves"`
	CoreWidth  int `json:"core_width"`
}

// Analyze computes the analysis of a trace. It hashes every whole block of the trace once for each
// block size in Analysis.Sizes. The error lists all faults of cfg; a trace without requests is an
// error too.
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
	faults := bounds.Faults{Owner: "bench: "}
	faults.If(cfg.BlockTokens < 1 || cfg.BlockTokens > MaxRequestTokens || cfg.BlockTokens%s.GrainTokens != 0,
		"BlockTokens is %d, want a multiple of %d, the block size of the trace, up to %d", cfg.BlockTokens, s.GrainTokens, MaxRequestTokens)
	faults.If(cfg.PoolTokens < 0 || cfg.Workers < 0, "PoolTokens is %d and Workers %d, want 0 (unknown) or more", cfg.PoolTokens, cfg.Workers)
	faults.If(s.Requests() == 0, "the trace has no requests")
	return faults.Err()
}

// blockSizes returns the block sizes to compare, ascending and without duplicates: asked, the size
// that the caller wants; the powers of two from 16 to 512 that are multiples of grain, the
// smallest possible block size; and if grain is 512 or more, one, two and four times grain.
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

// lengthsOf summarises lengths, which must not be empty. It sorts them in place.
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

// blockTree is the prefix tree of a trace's blocks. In nodes, a parent comes before
// its children.
type blockTree struct {
	blockTokens int
	nodes       []blockNode
	blocks      int
	hits        int // blocks whose node an earlier request had made
}

type blockNode struct {
	parent int32 // index in nodes; noBlock for the first block of a prompt
	depth  int32 // in blocks; 1 for the first
	visits int32 // requests whose prompt has this prefix
}

const noBlock = -1

// tree builds the prefix tree of all requests at one block size.
func (s *Sequences) tree(blockTokens int) *blockTree {
	p := s.pages(blockTokens)
	t := &blockTree{blockTokens: blockTokens, nodes: make([]blockNode, p.pages), blocks: len(p.visits), hits: p.ideal()}
	for i, end := range p.ends {
		parent := int32(noBlock)
		for j, at := range p.visits[p.begin(i):end] {
			n := &t.nodes[at]
			n.parent, n.depth = parent, int32(j)+1
			n.visits++
			parent = at
		}
	}
	return t
}

// summary measures the tree and its core. promptTokens and requests are the sums over the whole
// trace, for the rates and means.
func (t *blockTree) summary(promptTokens, requests int) PrefixTree {
	p := PrefixTree{BlockTokens: t.blockTokens, Blocks: t.blocks, Nodes: len(t.nodes), HitTokens: t.hits * t.blockTokens}
	var width []int
	inner := make([]bool, len(t.nodes)) // has a child in the core
	deep := 0                           // core blocks of all prompts, counted each time
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

// Buckets describes the kinds of prompts in a trace: the branches below the prefix
// that nearly all prompts share.
type Buckets struct {
	// StemTokens is the length of the prefix that at least stemShare of the requests
	// begin with.
	StemTokens int `json:"stem_tokens"`
	Branches   int `json:"branches"` // number of branches directly below the stem
	// Largest holds the largest branches as shares of all requests, descending: the
	// fewest that hold bucketShare of the requests together, at most maxBuckets. Share
	// is their sum.
	Largest []float64 `json:"largest"`
	Share   float64   `json:"share"`
	// StandOut reports whether two or more branches are in Largest, hold bucketShare
	// of the requests, and are of similar size (bucketRatio).
	StandOut bool `json:"stand_out"`
}

// Thresholds for Buckets.
const (
	maxBuckets  = 16
	bucketShare = 0.9  // least share of the requests in all buckets together
	bucketRatio = 0.5  // least size of the smallest bucket over the largest
	stemShare   = 0.95 // least share of the requests that begin with the stem
)

// buckets finds the stem and its branches.
func (t *blockTree) buckets(requests int) Buckets {
	var b Buckets
	stem := int32(noBlock)
	for i, n := range t.nodes { // one pass: parents come first, and at most one child has stemShare of the visits
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

// choose fills Largest, Share and StandOut. visits has the number of requests of each branch, in
// descending order; requests is the number of all requests.
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
