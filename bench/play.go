package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/kv"
)

// Run holds the requests and answers of one [Chat.Play], as the callers saw them.
type Run struct {
	exchanges []exchange // in order of submission
	wall      time.Duration
}

// exchange is one request and its answer.
type exchange struct {
	conversation, turn int
	prompt, output     []kv.Token
	cached             int
	logitDigest        uint64
	ttft               time.Duration
	gaps               []time.Duration // between consecutive tokens: len(output)-1
}

// Play sends all conversations to the node, cfg.Clients at a time. The turns of a
// conversation follow each other, each with all earlier questions and answers before
// it. progress, if not nil, is called after each answer, from several goroutines. The
// first error cancels the requests that run and ends the play.
func (c *Chat) Play(ctx context.Context, node *coppice.Node, progress func()) (*Run, error) {
	p := &player{load: c, node: node, progress: progress, run: &Run{}}
	users, ctx := errgroup.WithContext(ctx)
	users.SetLimit(c.cfg.Clients)
	start := time.Now()
	for i := range c.conversations {
		users.Go(func() error { return p.converse(ctx, i) })
	}
	err := users.Wait()
	p.run.wall = time.Since(start)
	return p.run, err
}

// player is the state of one Play.
type player struct {
	load     *Chat
	node     *coppice.Node
	progress func()

	mu  sync.Mutex
	run *Run
}

// converse sends the turns of one conversation, one after the other.
func (p *player) converse(ctx context.Context, conversation int) error {
	var history []kv.Token
	for turn, text := range p.load.conversations[conversation].turns {
		x, err := p.ask(ctx, conversation, turn, history, text)
		if err != nil {
			return fmt.Errorf("conversation %d, turn %d: %w", conversation, turn, err)
		}
		history = slices.Concat(x.prompt, x.output)
		if p.progress != nil {
			p.progress()
		}
	}
	return nil
}

// hear records tokens that arrived together. after is the time since the tokens before them, or
// for the first tokens of the answer the time since the request. For the first tokens, after is
// the TTFT, and the gaps between these tokens are 0. For later tokens, after is divided equally
// into gaps.
func (x *exchange) hear(after time.Duration, tokens []kv.Token) {
	for i := range tokens {
		switch {
		case len(x.output) > 0:
			x.gaps = append(x.gaps, after/time.Duration(len(tokens)))
		case i == 0:
			x.ttft = after
		default:
			x.gaps = append(x.gaps, 0)
		}
	}
	x.output = append(x.output, tokens...)
}

// ask sends one request: history, which is the conversation so far, followed by text. It records
// the answer piece by piece, and stores the exchange in the run at the place of its submission.
func (p *player) ask(ctx context.Context, conversation, turn int, history []kv.Token, text string) (*exchange, error) {
	p.mu.Lock()
	at := len(p.run.exchanges)
	p.run.exchanges = append(p.run.exchanges, exchange{conversation: conversation, turn: turn})
	p.mu.Unlock()
	x := exchange{conversation: conversation, turn: turn}
	start := time.Now()
	last := start
	for piece, err := range p.node.Generate(ctx, coppice.Request{
		Tokens: history, Prompt: text, MaxTokens: p.load.cfg.OutputTokens, IgnoreEOS: true, Digest: true,
	}) {
		if err != nil {
			return nil, err
		}
		if len(piece.Tokens) > 0 {
			now := time.Now()
			x.hear(now.Sub(last), piece.Tokens)
			last = now
		}
		if e := piece.Ending; e != nil {
			x.prompt, x.cached, x.logitDigest = e.Tokens[:e.PromptTokens], e.CachedTokens, e.LogitDigest
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.run.exchanges[at] = x
	return &x, nil
}
