package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/stores"
)

// SessionsConfig sizes a [PlaySessions]. 0 means the default. Its tags state the defaults, the bounds, and flags
// of coppice bench sessions.
type SessionsConfig struct {
	// Open starts a node with a device pool of kvTokens. Required.
	Open func(kvTokens int, tiers coppice.Tiers) (*coppice.Node, error) `kong:"-"`
	// ExtentPages is that of stores.Config.
	ExtentPages int `kong:"-"`

	Parts         []string `placeholder:"PARTS" enum:"forks,agents,parks" help:"Parts to play: forks, agents, parks. Default: all."`
	ForkTokens    []int    `placeholder:"100,100000" min:"1" max:"120000" help:"Lengths of the sessions that are forked, in tokens, on a simulated device. Default: 100,100000."`
	Forks         int      `default:"20000" min:"1" max:"1<<24" help:"Forks of each of them."`
	Agents        int      `default:"16" min:"1" max:"1024" help:"Agents at a time that share a prompt."`
	SubAgents     int      `name:"sub-agents" default:"3" min:"1" max:"64" help:"Sub-agents of each agent: forks that run at a time."`
	SharedTokens  int      `default:"4000" min:"1" max:"1<<20" help:"Tokens of the prompt that the agents share."`
	Sessions      int      `default:"200" min:"1" max:"1<<16" help:"Sessions that are parked, and then resumed in the same order."`
	PrivateTokens int      `default:"2000" min:"16" max:"1<<20" help:"Tokens of a parked session, which it shares with no other."`
	PoolSessions  int      `default:"20" min:"1" max:"1<<16" help:"Parked sessions for which the device's pool has room."`
	Tier          string   `default:"host" enum:"host,disk,host+disk" help:"Where sessions are parked: host, disk or host+disk."`
	Checked       int      `default:"20" min:"1" max:"1<<16" help:"Resumed sessions whose logit bits are compared with those of a node that computes the whole prompt."`
	Dir           string   `type:"path" placeholder:"DIR" help:"Directory for a temporary directory of the disk tier. Default: the system's directory of temporary files, which may be in memory."`
	Seed          uint64   `kong:"-"`
}

// Lengths in tokens of what comes after the prompt of a session in these loads.
const (
	sessionTask   = 32 // new in each turn of an agent
	sessionAnswer = 8
	sessionAsk    = 16 // new in the turn after a resume
)

func (c SessionsConfig) withDefaults() SessionsConfig {
	c = bounds.Fill(c)
	if len(c.ForkTokens) == 0 {
		c.ForkTokens = []int{100, 100_000}
	}
	if len(c.Parts) == 0 {
		c.Parts = []string{"forks", "agents", "parks"}
	}
	return c
}

// plays reports whether the run has this part.
func (c *SessionsConfig) plays(part string) bool { return slices.Contains(c.Parts, part) }

// Positions returns how many tokens the longest session has on the device, with its answers.
func (c SessionsConfig) Positions() int {
	c = c.withDefaults()
	return max(c.SharedTokens+4*(sessionTask+sessionAnswer), c.PrivateTokens+sessionAsk+2*sessionAnswer)
}

// SessionSteps returns the number of turns that PlaySessions runs, hence the number of calls of progress.
func (c SessionsConfig) SessionSteps() int {
	c = c.withDefaults()
	n := 0
	if c.plays("forks") {
		n += len(c.ForkTokens)
	}
	if c.plays("agents") {
		n += c.Agents * (2 + 2*c.SubAgents)
	}
	if c.plays("parks") {
		n += 2*c.Sessions + min(c.Checked, c.Sessions)
	}
	return n
}

// SessionFigures are the figures of [PlaySessions]: of the parts that were played.
type SessionFigures struct {
	Forks  []ForkFigures `json:"forks"`
	Agents *AgentFigures `json:"agents"`
	Parks  *ParkFigures  `json:"parks"`
}

// LeakedPages returns the pages that were leaked in all parts.
func (f *SessionFigures) LeakedPages() (n int) {
	if f.Agents != nil {
		n += f.Agents.LeakedPages
	}
	if f.Parks != nil {
		n += f.Parks.LeakedPages
	}
	return n
}

// ForkFigures are those of the forks of one session.
type ForkFigures struct {
	Tokens         int     `json:"tokens"` // of the session
	Forks          int     `json:"forks"`
	MicrosPerFork  float64 `json:"us_per_fork"`
	ForksPerSecond float64 `json:"forks_per_second"`
}

// AgentFigures are those of agents with sub-agents over one prompt. Tokens are prompt tokens of all turns.
type AgentFigures struct {
	Agents         int     `json:"agents"`
	SubAgents      int     `json:"sub_agents"` // of each agent
	SharedTokens   int     `json:"shared_tokens"`
	PromptTokens   int     `json:"prompt_tokens"`
	ComputedTokens int     `json:"computed_tokens"`
	IdealTokens    int     `json:"ideal_computed_tokens"` // if no token is computed twice
	OverIdeal      float64 `json:"computed_over_ideal"`
	Seconds        float64 `json:"seconds"`
	LeakedPages    int     `json:"leaked_pages"`
}

// ParkFigures are those of parked and resumed sessions. Times are medians and 90th percentiles.
type ParkFigures struct {
	Sessions         int        `json:"sessions"`
	PrivateTokens    int        `json:"private_tokens"`
	PoolTokens       int        `json:"pool_tokens"` // of the device
	Tier             string     `json:"tier"`
	PrefillMillis    [2]float64 `json:"prefill_ms"` // until the first token of a session's first turn
	ParkMillis       [2]float64 `json:"park_ms"`
	ParkedTokens     int        `json:"parked_tokens"` // of all sessions
	ParkedBytes      int64      `json:"parked_bytes"`
	ResumeMillis     [2]float64 `json:"resume_ms"`         // from Resume until the first token of the next turn
	ResumeOfPrefill  float64    `json:"resume_of_prefill"` // of the medians
	ResumedTokens    int        `json:"resumed_tokens"`    // of the parked tokens: came back, and were not computed in the next turns
	RecomputedTokens int        `json:"recomputed_tokens"` // of the parked tokens: computed again in the next turns
	Checked          int        `json:"checked"`
	Identical        bool       `json:"identical"` // the checked turns have the logit bits of a node that computes everything
	LeakedPages      int        `json:"leaked_pages"`
}

// PlaySessions forks, parks and resumes sessions, and counts and times it. progress, if not nil, is called after
// each turn. Errors are those of cfg, of the nodes and of the disk, and the end of ctx.
func PlaySessions(ctx context.Context, cfg SessionsConfig, progress func()) (*SessionFigures, error) {
	cfg = cfg.withDefaults()
	faults := bounds.Faults{Owner: "bench: "}
	faults.Add(bounds.Check("bench", cfg))
	for _, part := range cfg.Parts {
		faults.If(!slices.Contains([]string{"forks", "agents", "parks"}, part), "a part is %q, want forks, agents or parks", part)
	}
	faults.If(!slices.Contains([]string{"host", "disk", "host+disk"}, cfg.Tier), "Tier is %q, want host, disk or host+disk", cfg.Tier)
	if err := faults.Err(); err != nil {
		return nil, err
	}
	p := &sessionPlay{cfg: &cfg, progress: orNothing(progress)}
	all := &SessionFigures{}
	if cfg.plays("forks") {
		for _, tokens := range cfg.ForkTokens {
			f, err := p.forks(ctx, tokens)
			if err != nil {
				return nil, fmt.Errorf("forks at %d tokens: %w", tokens, err)
			}
			all.Forks = append(all.Forks, f)
		}
	}
	if cfg.plays("agents") {
		f, err := p.agents(ctx)
		if err != nil {
			return nil, fmt.Errorf("agents: %w", err)
		}
		all.Agents = &f
	}
	if cfg.plays("parks") {
		f, err := p.parks(ctx)
		if err != nil {
			return nil, fmt.Errorf("parked sessions: %w", err)
		}
		all.Parks = &f
	}
	return all, nil
}

// sessionPlay measures sessions.
type sessionPlay struct {
	cfg      *SessionsConfig
	progress func()
}

// made returns n random tokens that depend on the seed and on these numbers alone.
func (p *sessionPlay) made(vocab, n int, kind, index uint64) []kv.Token {
	rng := rand.New(rand.NewPCG(p.cfg.Seed^kind<<48, index))
	tokens := make([]kv.Token, n)
	for i := range tokens {
		tokens[i] = kv.Token(rng.IntN(vocab))
	}
	return tokens
}

// turn runs a turn with these new tokens and returns its end.
func (p *sessionPlay) turn(ctx context.Context, s *coppice.Session, tokens []kv.Token, output int) (coppice.Ending, error) {
	r, err := s.Text(ctx, coppice.Request{Tokens: tokens, MaxTokens: output, IgnoreEOS: true, Digest: true})
	if err != nil {
		return coppice.Ending{}, err
	}
	p.progress()
	return r.Ending, nil
}

// forks times the forks of a session of this many tokens. The device is simulated: a fork does not touch it.
func (p *sessionPlay) forks(ctx context.Context, tokens int) (f ForkFigures, err error) {
	b, err := sim.Open(sim.Config{Pages: 2*tokens/16 + 64, Sanitize: sim.Off})
	if err != nil {
		return f, err
	}
	node, err := coppice.Open(coppice.Config{Backend: b})
	if err != nil {
		return f, errors.Join(err, b.Close())
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	s, err := node.NewSession(coppice.SessionOptions{})
	if err != nil {
		return f, err
	}
	if _, err := p.turn(ctx, s, p.made(node.Info().Vocab, tokens, 0, 0), 1); err != nil {
		return f, err
	}
	var begin time.Time
	for i := range p.cfg.Forks + p.cfg.Forks/10 {
		if i == p.cfg.Forks/10 { // what comes before warms up
			begin = time.Now()
		}
		child, err := s.Fork()
		if err != nil {
			return f, err
		}
		child.Release()
	}
	each := time.Since(begin).Seconds() / float64(p.cfg.Forks)
	return ForkFigures{Tokens: tokens, Forks: p.cfg.Forks, MicrosPerFork: each * 1e6, ForksPerSecond: 1 / each}, nil
}

// agents runs all agents at a time. Each has a turn, forks its sub-agents, which have two turns each at a time, and has
// another turn when they have ended.
func (p *sessionPlay) agents(ctx context.Context) (f AgentFigures, err error) {
	c := p.cfg
	each := 4 * (sessionTask + sessionAnswer + 256) // a session's own tokens, in pages of its own
	node, err := c.Open(c.SharedTokens+256+c.Agents*(1+c.SubAgents)*each, coppice.Tiers{})
	if err != nil {
		return f, err
	}
	var computed, prompts atomic.Int64
	run := func(ctx context.Context, s *coppice.Session, tokens []kv.Token) error {
		e, err := p.turn(ctx, s, tokens, sessionAnswer)
		computed.Add(int64(e.ComputedTokens))
		prompts.Add(int64(e.PromptTokens))
		return err
	}
	begin := time.Now()
	shared := p.made(node.Info().Vocab, c.SharedTokens, 1, 0)
	task := func(agent, sub, turn int) []kv.Token {
		return p.made(node.Info().Vocab, sessionTask, 2, uint64(agent)<<32|uint64(sub)<<16|uint64(turn))
	}
	agents, within := errgroup.WithContext(ctx)
	for i := range c.Agents {
		agents.Go(func() error {
			s, err := node.NewSession(coppice.SessionOptions{Name: fmt.Sprintf("agent-%d", i)})
			if err == nil {
				err = run(within, s, slices.Concat(shared, task(i, 0, 0)))
			}
			if err != nil {
				return err
			}
			defer s.Release()
			subs, within := errgroup.WithContext(within)
			for j := range c.SubAgents {
				sub, err := s.Fork()
				if err != nil {
					return err
				}
				subs.Go(func() error {
					defer sub.Release()
					if err := run(within, sub, task(i, 1+j, 0)); err != nil {
						return err
					}
					return run(within, sub, task(i, 1+j, 1))
				})
			}
			if err := subs.Wait(); err != nil {
				return err
			}
			return run(ctx, s, task(i, 0, 1))
		})
	}
	err = agents.Wait()
	took := time.Since(begin)
	leaked, closed := closeNode(node)
	if err := errors.Join(err, closed); err != nil {
		return f, err
	}
	f = AgentFigures{Agents: c.Agents, SubAgents: c.SubAgents, SharedTokens: c.SharedTokens, LeakedPages: leaked, Seconds: took.Seconds(),
		PromptTokens: int(prompts.Load()), ComputedTokens: int(computed.Load()), IdealTokens: c.idealAgents()}
	f.OverIdeal = float64(f.ComputedTokens) / float64(f.IdealTokens)
	return f, nil
}

// idealAgents returns the prompt tokens that the agents have to compute, if none is computed twice. The last token of an answer is
// computed when a prompt continues it: once for all prompts that do.
func (c *SessionsConfig) idealAgents() int {
	sub := sessionTask + 1 + sessionTask
	return c.SharedTokens + c.Agents*(sessionTask+1+c.SubAgents*sub+sessionTask)
}

// closeNode closes a node and returns the pages that it leaked.
func closeNode(node *coppice.Node) (leaked int, err error) {
	if err := node.Close(); err != nil {
		return 0, err
	}
	st, err := node.Stats(context.Background()) // a closed node answers at once
	return st.LeakedPages, err
}

// parks runs a turn of each session and parks it. Then it resumes them one after the other in the same order, each with another turn.
func (p *sessionPlay) parks(ctx context.Context) (f ParkFigures, err error) {
	c := p.cfg
	each := c.PrivateTokens + sessionAsk + 2*sessionAnswer + 2*16
	f = ParkFigures{Sessions: c.Sessions, PrivateTokens: c.PrivateTokens, PoolTokens: c.PoolSessions * each, Tier: c.Tier, Identical: true}
	tiers, remove, err := p.tiers()
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	node, err := c.Open(f.PoolTokens, tiers)
	if err != nil {
		return f, err
	}
	digests, err := p.parkAndResume(ctx, node, &f)
	leaked, closed := closeNode(node)
	if err := errors.Join(err, closed); err != nil {
		return f, err
	}
	f.LeakedPages = leaked
	return f, p.check(ctx, &f, digests)
}

// tiers returns the tiers below the device, with room for all sessions, and a function that removes their files.
func (p *sessionPlay) tiers() (tiers coppice.Tiers, remove func() error, err error) {
	c := stores.Config{ExtentPages: p.cfg.ExtentPages}
	remove = func() error { return nil }
	bytes, err := p.parkBytes()
	if err != nil {
		return tiers, remove, err
	}
	if p.cfg.Tier != "disk" {
		c.HostBytes = bytes
	}
	if p.cfg.Tier != "host" {
		dir, err := os.MkdirTemp(p.cfg.Dir, "coppice-sessions-")
		if err != nil {
			return tiers, remove, fmt.Errorf("a place for the disk tier: %w", err)
		}
		c.Disk, c.DiskBytes = dir, bytes
		remove = func() error { return os.RemoveAll(dir) }
	}
	return coppice.Tiers{Open: c.Open}, remove, nil
}

// parkBytes returns the size of a tier with room for all sessions, which depends on the model.
func (p *sessionPlay) parkBytes() (int64, error) {
	node, err := p.cfg.Open(p.cfg.Positions()+512, coppice.Tiers{})
	if err != nil {
		return 0, err
	}
	info := node.Info()
	layout := mempool.LayoutOf(info.PageTokens, info.PageBytes)
	extents := kv.CeilPages(p.cfg.PrivateTokens+sessionAsk+2*sessionAnswer, layout.ExtentTokens()) + 2
	return int64(p.cfg.Sessions*extents+16) * int64(stores.SlotBytes(layout)) * 5 / 4, node.Close()
}

// parkAndResume plays all sessions on node. It returns the digests of the turns after the resumes, of the first cfg.Checked sessions.
func (p *sessionPlay) parkAndResume(ctx context.Context, node *coppice.Node, f *ParkFigures) (digests []uint64, err error) {
	info := node.Info()
	sessions := make([]*coppice.Session, p.cfg.Sessions)
	var prefills, parks, resumes []time.Duration
	parked := make([]int, len(sessions))
	for i := range sessions {
		if sessions[i], err = node.NewSession(coppice.SessionOptions{Name: fmt.Sprintf("parked-%d", i)}); err != nil {
			return nil, err
		}
		e, err := p.turn(ctx, sessions[i], p.made(info.Vocab, p.cfg.PrivateTokens, 3, uint64(i)), sessionAnswer)
		if err != nil {
			return nil, fmt.Errorf("the first turn of session %d: %w", i, err)
		}
		prefills = append(prefills, e.FirstToken)
		begin := time.Now()
		at, err := sessions[i].Park(ctx)
		if err != nil {
			return nil, fmt.Errorf("park of session %d: %w", i, err)
		}
		parks = append(parks, time.Since(begin))
		parked[i] = at.Tokens
		f.ParkedTokens += at.Tokens
	}
	f.ParkedBytes = int64(f.ParkedTokens) / int64(info.PageTokens) * int64(info.PageBytes)
	for i, s := range sessions {
		ask := p.made(info.Vocab, sessionAsk, 4, uint64(i))
		begin := time.Now()
		if err := s.Resume(ctx); err != nil {
			return nil, fmt.Errorf("resume of session %d: %w", i, err)
		}
		asked := time.Since(begin)
		e, err := p.turn(ctx, s, ask, sessionAnswer)
		if err != nil {
			return nil, fmt.Errorf("the turn after the resume of session %d: %w", i, err)
		}
		resumes = append(resumes, asked+e.FirstToken)
		again := max(0, parked[i]-(e.PromptTokens-e.ComputedTokens))
		f.ResumedTokens += parked[i] - again
		f.RecomputedTokens += again
		if i < p.cfg.Checked {
			digests = append(digests, e.LogitDigest)
		}
	}
	for _, m := range []struct {
		to   *[2]float64
		from []time.Duration
	}{{&f.PrefillMillis, prefills}, {&f.ParkMillis, parks}, {&f.ResumeMillis, resumes}} {
		m.to[0], m.to[1] = Percentile(m.from, 50), Percentile(m.from, 90)
	}
	f.ResumeOfPrefill = f.ResumeMillis[0] / f.PrefillMillis[0]
	return digests, nil
}

// check computes the turns after the resumes of the first sessions on a node without tiers and sessions, and compares the logit bits.
func (p *sessionPlay) check(ctx context.Context, f *ParkFigures, digests []uint64) error {
	node, err := p.cfg.Open(p.cfg.Positions()+512, coppice.Tiers{})
	if err != nil {
		return err
	}
	info := node.Info()
	for i, digest := range digests {
		first, err := node.Text(ctx, coppice.Request{Tokens: p.made(info.Vocab, p.cfg.PrivateTokens, 3, uint64(i)), MaxTokens: sessionAnswer, IgnoreEOS: true})
		var second coppice.Result
		if err == nil {
			prompt := slices.Concat(first.Tokens, p.made(info.Vocab, sessionAsk, 4, uint64(i)))
			second, err = node.Text(ctx, coppice.Request{Tokens: prompt, MaxTokens: sessionAnswer, IgnoreEOS: true, Digest: true})
		}
		if err != nil {
			return errors.Join(err, node.Close())
		}
		f.Checked++
		f.Identical = f.Identical && second.LogitDigest == digest
		p.progress()
	}
	return node.Close()
}
