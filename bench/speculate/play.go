package speculate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/grammar/jsonschema"
	"github.com/coppice-llm/coppice/kv"
)

// run is one play of a load on a node of its own.
type run struct {
	answers   []answer // by task
	decode    time.Duration
	tokens    int           // output tokens that came within decode
	processor time.Duration // of all steps but those of the prompts
	Work
}

// answer is the output of a task.
type answer struct {
	output []kv.Token
	digest uint64 // of the logits of all output tokens; 0: not asked for
	came   []arrival
}

// arrival is a number of tokens that came together.
type arrival struct {
	at     time.Time
	tokens int
}

// player plays a load on one node.
type player struct {
	cfg      *Config
	load     *Load
	bits     bool // answers have digests of their logits
	node     *coppice.Node
	requests []coppice.Request // by task
	scripts  [][]kv.Token      // by task
	run      run
}

// play plays the load on a new node, and closes it. bits asks for digests of the logits.
func play(ctx context.Context, load *Load, cfg *Config, drafts, bits bool, progress func()) (*run, error) {
	p := &player{cfg: cfg, load: load, bits: bits}
	p.scripts = make([][]kv.Token, len(load.Tasks)) // force keeps the slice; prepare fills it before any request
	node, err := cfg.Open(drafts, func(b engine.Backend) engine.Backend {
		if cfg.Free {
			return b
		}
		return force(b, p.scripts)
	})
	if err != nil {
		return nil, err
	}
	defer node.Close()
	p.node, p.run.answers = node, make([]answer, len(load.Tasks))
	if err := p.prepare(ctx); err != nil {
		return nil, err
	}
	for lo := 0; lo < len(load.Tasks); lo += load.Parallel {
		hi := min(lo+load.Parallel, len(load.Tasks))
		if err := p.wave(ctx, lo, hi); err != nil {
			return nil, err
		}
		for range hi - lo {
			progress()
		}
	}
	return &p.run, node.Close()
}

// prepare makes the scripts and the requests.
func (p *player) prepare(ctx context.Context) error {
	for i := range p.load.Tasks {
		t := &p.load.Tasks[i]
		script, err := p.node.Tokenize(ctx, coppice.Text{Text: t.Output, Rendered: true})
		if err != nil {
			return fmt.Errorf("speculate: the output of %s: %w", t.Name, err)
		}
		if most := p.cfg.OutputTokens; most > 0 {
			script = script[:min(len(script), most)]
		}
		p.scripts[i] = script
		r := coppice.Request{Prompt: t.Prompt, MaxTokens: len(script), Digest: p.bits, IgnoreEOS: !p.cfg.Free}
		if len(t.Schema) > 0 {
			r.Format = coppice.Format{Language: jsonschema.Schema, Text: string(t.Schema)}
		}
		if !p.cfg.Free {
			r.Sampling.Seed = seed(i)
		}
		if len(t.Messages) > 0 {
			if r, err = p.chat(t, r); err != nil {
				return fmt.Errorf("speculate: %s: %w", t.Name, err)
			}
		}
		p.requests = append(p.requests, r)
	}
	return nil
}

// chat returns r with the messages of t as its prompt. A model without a template gets the texts alone.
func (p *player) chat(t *Task, r coppice.Request) (coppice.Request, error) {
	if p.node.Template() != nil {
		return p.node.ChatRequest(t.Messages, coppice.ChatOptions{Request: r})
	}
	var b strings.Builder
	for _, m := range t.Messages {
		b.WriteString(m.Content + "\n\n")
	}
	r.Prompt = b.String()
	return r, nil
}

// wave runs the tasks [lo, hi) at a time. Before, it computes their prompts, so that the time counts
// decoding alone: it begins when all tasks have their first token, and ends with the last token.
func (p *player) wave(ctx context.Context, lo, hi int) error {
	warm := slices.Clone(p.requests[lo:hi])
	for i := range warm {
		warm[i].MaxTokens = 1
	}
	if _, err := p.node.Batch(ctx, warm); err != nil {
		return fmt.Errorf("speculate: %s: %w", p.load.Name, err)
	}
	before, err := p.node.Stats(ctx)
	if err != nil {
		return err
	}
	spent := p.cfg.Processor()
	tasks, within := errgroup.WithContext(ctx)
	for i := lo; i < hi; i++ {
		tasks.Go(func() error { return p.ask(within, i) })
	}
	if err := tasks.Wait(); err != nil {
		return err
	}
	p.run.processor += p.cfg.Processor() - spent
	after, err := p.node.Stats(ctx)
	if err != nil {
		return err
	}
	p.run.add(&before, &after)
	var begin, end time.Time
	for _, a := range p.run.answers[lo:hi] {
		begin = later(begin, a.came[0].at)
		end = later(end, a.came[len(a.came)-1].at)
	}
	for _, a := range p.run.answers[lo:hi] {
		for _, c := range a.came {
			if c.at.After(begin) {
				p.run.tokens += c.tokens
			}
		}
	}
	p.run.decode += end.Sub(begin)
	return nil
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// ask runs task i and keeps its answer.
func (p *player) ask(ctx context.Context, i int) error {
	a := &p.run.answers[i]
	for piece, err := range p.node.Generate(ctx, p.requests[i]) {
		if err != nil {
			return fmt.Errorf("speculate: %s: %w", p.load.Tasks[i].Name, err)
		}
		if n := len(piece.Tokens); n > 0 {
			a.came = append(a.came, arrival{time.Now(), n})
			a.output = append(a.output, piece.Tokens...)
		}
		if e := piece.Ending; e != nil {
			a.digest = e.LogitDigest
		}
	}
	if len(a.came) == 0 {
		return fmt.Errorf("speculate: %s has no output", p.load.Tasks[i].Name)
	}
	if !p.cfg.Free && !slices.Equal(a.output, p.scripts[i]) {
		return fmt.Errorf("speculate: %s has %d output tokens that are not the %d of its script", p.load.Tasks[i].Name, len(a.output), len(p.scripts[i]))
	}
	return nil
}
