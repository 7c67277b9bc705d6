package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/stores"
)

// TiersConfig sizes a [PlayTiers]. 0 means the default. Its tags state the defaults, the bounds, and flags
// of coppice bench tiers.
type TiersConfig struct {
	// Open starts a node with a device pool of kvTokens. Required.
	Open func(kvTokens int, tiers coppice.Tiers) (*coppice.Node, error) `kong:"-"`
	// ExtentPages is that of stores.Config.
	ExtentPages int `kong:"-"`

	PoolTokens   int    `placeholder:"N" min:"1" max:"1<<28" help:"Size of the device's pool, in tokens. Default: 8192, or twice the prompt if that is more."`
	PromptTokens int    `default:"512" min:"1" help:"Tokens of a document; each document is asked about once per round."`
	WorkingSets  []int  `placeholder:"1,4,16" min:"1" max:"1<<16" help:"Sizes of the documents together, as multiples of the pool. Default: 1,4,16."`
	Rounds       int    `default:"3" min:"1" max:"1000" help:"Rounds before the restart; the first computes everything."`
	Clients      int    `default:"1" min:"1" max:"1000" help:"Parallel requests."`
	Dir          string `type:"path" placeholder:"DIR" help:"Directory for temporary directories of the disk tier. Default: the system's directory of temporary files, which may be in memory."`
	Seed         uint64 `kong:"-"`
}

// Sizes of a request besides the document, in tokens: a question, new in each round,
// follows the document and gets a short answer.
const (
	tierQuestion = 16
	tierAnswer   = 4
)

func (c TiersConfig) withDefaults() TiersConfig {
	c = bounds.Fill(c)
	c.PoolTokens = cmp.Or(c.PoolTokens, max(8192, 2*c.PromptTokens))
	if len(c.WorkingSets) == 0 {
		c.WorkingSets = []int{1, 4, 16}
	}
	return c
}

// Positions returns how many tokens a request has, with its answer.
func (c TiersConfig) Positions() int {
	return c.withDefaults().PromptTokens + tierQuestion + tierAnswer
}

func (c *TiersConfig) validate() error {
	faults := bounds.Faults{Owner: "bench: "}
	faults.Add(bounds.Check("bench", c))
	faults.If(c.PromptTokens > c.PoolTokens/2, "a prompt of %d tokens takes more than half of a pool of %d; make the pool larger", c.PromptTokens, c.PoolTokens)
	return faults.Err()
}

// TierConfigs names the configurations of tiers below the device that are compared.
var TierConfigs = [...]string{"none", "host", "disk", "host+disk"}

// TierRun holds the figures of one configuration with one working set. Rates are
// shares of prompt tokens, before the restart unless stated otherwise.
type TierRun struct {
	WorkingSet    int     `json:"working_set"` // multiple of the pool
	Config        string  `json:"config"`
	HitRateDevice float64 `json:"hit_rate_device"`
	HitRateHost   float64 `json:"hit_rate_host"`
	HitRateDisk   float64 `json:"hit_rate_disk"`
	// ComputedTokens counts computed prompt tokens before the restart;
	// IdealComputedTokens those that a device with room for everything computes for
	// the same requests.
	ComputedTokens      int     `json:"computed_tokens"`
	IdealComputedTokens int     `json:"ideal_computed_tokens"`
	TTFTp50Millis       float64 `json:"ttft_ms_p50"`
	TTFTp99Millis       float64 `json:"ttft_ms_p99"`
	RestoredTokens      int     `json:"restored_tokens"`  // onboarded from lower tiers, before and after the restart
	RestartHitRate      float64 `json:"restart_hit_rate"` // in the round after the restart, from all tiers
	Identical           bool    `json:"identical"`        // all logit bits equal those of the ideal device
	LeakedPages         int     `json:"leaked_pages"`     // of both nodes, before and after the restart
}

// tierAsk identifies a request, and tierReply holds its outcome.
type tierAsk struct{ document, round int }

type tierReply struct {
	cached           [kv.Tiers]int
	prompt, computed int
	digest           uint64
	ttft             time.Duration
}

// tierPlay measures one working set.
type tierPlay struct {
	cfg       *TiersConfig
	progress  func()
	set       int // multiple of the pool
	documents int
	vocab     int
	bytes     int64 // capacity that a lower tier needs for the whole working set
	ideal     map[tierAsk]tierReply
}

// TierSteps returns the number of requests that PlayTiers makes for nodes with pages
// of pageTokens, hence the number of calls of progress.
func (c TiersConfig) TierSteps(pageTokens int) (n int) {
	c = c.withDefaults()
	for _, set := range c.WorkingSets {
		n += c.documents(set, pageTokens) * (c.Rounds + 1) * (1 + len(TierConfigs))
	}
	return n
}

// documents returns the number of documents, at least 1, that together with the questions and
// answers of all rounds take as many tokens as set device pools have. set is the size of the
// working set.
func (c *TiersConfig) documents(set, pageTokens int) int {
	each := c.PromptTokens + (c.Rounds+1)*kv.CeilPages(tierQuestion+tierAnswer+pageTokens, pageTokens)*pageTokens
	return max(set*c.PoolTokens/each, 1)
}

// PlayTiers compares tiers below the device. It asks about documents in a cycle: if
// the device cannot hold all documents, it has evicted each one by the time of the next
// question about it, and only a lower tier can restore it. After cfg.Rounds rounds the
// node is closed and opened again, and a last round shows what survived the restart.
// progress, if not nil, is called after each request. Errors are those of cfg, of the
// nodes and of the disk, and the end of ctx.
func PlayTiers(ctx context.Context, cfg TiersConfig, progress func()) (TierRuns, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	var runs TierRuns
	for _, set := range cfg.WorkingSets {
		p := &tierPlay{cfg: &cfg, progress: orNothing(progress), set: set}
		if err := p.reference(ctx); err != nil {
			return nil, err
		}
		for _, name := range TierConfigs {
			run, err := p.run(ctx, name)
			if err != nil {
				return nil, fmt.Errorf("working set %dx, %s: %w", set, name, err)
			}
			runs = append(runs, run)
		}
	}
	return runs, nil
}

// reference plays all rounds on a device with room for everything and no lower tier.
// It also derives the sizes of the working set from the node.
func (p *tierPlay) reference(ctx context.Context) error {
	node, err := p.cfg.Open((p.set+1)*p.cfg.PoolTokens, coppice.Tiers{})
	if err != nil {
		return err
	}
	info := node.Info()
	layout := mempool.LayoutOf(info.PageTokens, info.PageBytes)
	p.vocab, p.documents = info.Vocab, p.cfg.documents(p.set, info.PageTokens)
	extents := kv.CeilPages(p.cfg.PromptTokens, layout.ExtentTokens()) + p.cfg.Rounds + 1 // each question has a tail of its own
	p.bytes = int64(p.documents*extents+16) * int64(stores.SlotBytes(layout)) * 5 / 4
	p.ideal = map[tierAsk]tierReply{}
	err = p.play(ctx, node, 0, p.cfg.Rounds+1, p.ideal)
	return errors.Join(err, node.Close())
}

// tiers returns the tiers of the configuration name, one of TierConfigs, with the disk tier in
// dir. In "host" and "disk" the tier has room for the whole working set; in "host+disk" the disk
// has, and the host has room for half of it.
func (p *tierPlay) tiers(name, dir string) coppice.Tiers {
	c := stores.Config{ExtentPages: p.cfg.ExtentPages}
	switch name {
	case "host":
		c.HostBytes = p.bytes
	case "disk":
		c.Disk, c.DiskBytes = dir, p.bytes
	case "host+disk":
		c.HostBytes, c.Disk, c.DiskBytes = p.bytes/2, dir, p.bytes
	default:
		return coppice.Tiers{}
	}
	return coppice.Tiers{Open: c.Open}
}

// run plays all rounds but the last on one node, and the last on another node with the
// same directory. It removes the directory.
func (p *tierPlay) run(ctx context.Context, name string) (run TierRun, err error) {
	dir, err := os.MkdirTemp(p.cfg.Dir, "coppice-tiers-")
	if err != nil {
		return run, fmt.Errorf("a place for the disk tier: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	run = TierRun{WorkingSet: p.set, Config: name, Identical: true}
	for phase, rounds := range [][2]int{{0, p.cfg.Rounds}, {p.cfg.Rounds, p.cfg.Rounds + 1}} {
		node, err := p.cfg.Open(p.cfg.PoolTokens, p.tiers(name, dir))
		if err != nil {
			return run, err
		}
		got := map[tierAsk]tierReply{}
		if err := errors.Join(p.play(ctx, node, rounds[0], rounds[1], got), node.Close()); err != nil {
			return run, err
		}
		st, err := node.Stats(context.Background()) // a closed node answers at once
		if err != nil {
			return run, err
		}
		run.LeakedPages += st.LeakedPages
		if phase == 0 {
			run.count(got, p.ideal)
		} else {
			run.restart(got, p.ideal)
		}
	}
	return run, nil
}

// count fills in the figures of the rounds before the restart. got has the replies of the run,
// ideal those of the reference device to the same requests.
func (r *TierRun) count(got, ideal map[tierAsk]tierReply) {
	cached, prompts := r.compare(got, ideal)
	ttft := make([]time.Duration, 0, len(got))
	for ask, reply := range got {
		r.ComputedTokens += reply.computed
		r.IdealComputedTokens += ideal[ask].computed
		ttft = append(ttft, reply.ttft)
	}
	r.HitRateDevice, r.HitRateHost, r.HitRateDisk = cached[kv.TierDevice]/prompts, cached[kv.TierHost]/prompts, cached[kv.TierDisk]/prompts
	r.TTFTp50Millis, r.TTFTp99Millis = Percentile(ttft, 50), Percentile(ttft, 99)
}

// restart adds the figures of the round after the restart. got has the replies of the run, ideal
// those of the reference device to the same requests.
func (r *TierRun) restart(got, ideal map[tierAsk]tierReply) {
	cached, prompts := r.compare(got, ideal)
	all := 0.0
	for _, n := range cached {
		all += n
	}
	r.RestartHitRate = all / prompts
}

// compare adds the figures that both phases have, and returns the cached prompt tokens by tier, and all
// prompt tokens.
func (r *TierRun) compare(got, ideal map[tierAsk]tierReply) (cached [kv.Tiers]float64, prompts float64) {
	for ask, reply := range got {
		prompts += float64(reply.prompt)
		for t, n := range reply.cached {
			cached[t] += float64(n)
		}
		r.RestoredTokens += reply.cached[kv.TierHost] + reply.cached[kv.TierDisk]
		r.Identical = r.Identical && reply.digest == ideal[ask].digest
	}
	return cached, prompts
}

// play asks about each document once in each of the rounds [from, to), and stores the
// replies. The first error stops the client that met it and cancels the others.
func (p *tierPlay) play(ctx context.Context, node *coppice.Node, from, to int, replies map[tierAsk]tierReply) error {
	clients, ctx := errgroup.WithContext(ctx)
	clients.SetLimit(p.cfg.Clients)
	var mu sync.Mutex
	for round := from; round < to; round++ {
		for document := range p.documents {
			clients.Go(func() error {
				ask := tierAsk{document, round}
				reply, err := p.ask(ctx, node, ask)
				if err != nil {
					return fmt.Errorf("document %d, round %d: %w", document, round, err)
				}
				mu.Lock()
				defer mu.Unlock()
				replies[ask] = reply
				p.progress()
				return nil
			})
		}
	}
	return clients.Wait()
}

// ask sends one question about a document. Document and question are random tokens
// that depend on the seed, the document and the round alone.
func (p *tierPlay) ask(ctx context.Context, node *coppice.Node, ask tierAsk) (reply tierReply, err error) {
	tokens := make([]kv.Token, 0, p.cfg.PromptTokens+tierQuestion)
	for _, part := range [][2]int{{0, p.cfg.PromptTokens}, {1 + ask.round, tierQuestion}} {
		rng := rand.New(rand.NewPCG(p.cfg.Seed^uint64(ask.document), uint64(part[0])))
		for range part[1] {
			tokens = append(tokens, kv.Token(rng.IntN(p.vocab)))
		}
	}
	req := coppice.Request{Tokens: tokens, MaxTokens: tierAnswer, IgnoreEOS: true, Digest: true}
	for piece, err := range node.Generate(ctx, req) {
		if err != nil {
			return reply, err
		}
		if e := piece.Ending; e != nil {
			reply = tierReply{cached: e.CachedByTier, prompt: e.PromptTokens, computed: e.ComputedTokens, digest: e.LogitDigest, ttft: e.FirstToken}
		}
	}
	return reply, ctx.Err()
}

// TierRuns are the runs of [PlayTiers].
type TierRuns []TierRun

// Rows returns a header and a row for each run.
func (runs TierRuns) Rows() (_ [][]string, legend string) {
	rows := [][]string{{"set", "tiers", "device", "host", "disk", "computed", "of ideal", "TTFT p50", "p99", "restored", "restart", "same bits", "leaked"}}
	for i := range runs {
		r := &runs[i]
		rows = append(rows, []string{
			fmt.Sprintf("%dx", r.WorkingSet), r.Config, tierShare(r.HitRateDevice), tierShare(r.HitRateHost), tierShare(r.HitRateDisk),
			fmt.Sprint(r.ComputedTokens), fmt.Sprintf("%.2f", float64(r.ComputedTokens)/float64(max(r.IdealComputedTokens, 1))),
			fmt.Sprintf("%.1f ms", r.TTFTp50Millis), fmt.Sprintf("%.1f ms", r.TTFTp99Millis),
			fmt.Sprint(r.RestoredTokens), tierShare(r.RestartHitRate), map[bool]string{true: "yes", false: "NO"}[r.Identical], fmt.Sprint(r.LeakedPages),
		})
	}
	return rows, "device, host, disk: where prompt tokens were found. Ideal: a device with room for everything. restart: found in the first\nround after the node was closed and opened again."
}

func tierShare(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
