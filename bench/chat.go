package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/internal/opticks"
	"github.com/coppice-llm/coppice/kv"
)

// ChatConfig sizes a chat load. The zero value works. Its tags state the defaults, the bounds, and flags
// of coppice bench chat.
type ChatConfig struct {
	Requests      int    `default:"200" min:"1" help:"Total number of requests."`
	Turns         int    `default:"4" min:"1" help:"Turns per conversation."`
	SystemPrompts int    `name:"systems" default:"6" min:"1" help:"Number of different system prompts that the conversations share."`
	SystemBytes   int    `default:"480" min:"1" help:"Length of a system prompt, in bytes."`
	OutputTokens  int    `default:"16" min:"1" help:"Tokens per answer."`
	Clients       int    `default:"8" min:"1" help:"Parallel conversations."`
	Seed          uint64 `kong:"-"` // chooses pages, questions and their system prompts
}

// Chat is a load of conversations: users ask questions about Newton's Opticks, and
// each system prompt holds a few pages of the book. The text is real English, in the
// chat format of Llama 3.
type Chat struct {
	cfg           ChatConfig
	conversations []conversation
}

// conversation holds the user's messages, one for each turn, in chat format up to the
// header of the answer. The model's answers are not part of it.
type conversation struct{ turns []string }

// NewChat makes a load. The same configuration gives the same load on every machine.
// The error lists all faults of cfg.
func NewChat(cfg ChatConfig) (*Chat, error) {
	cfg = bounds.Fill(cfg)
	if err := bounds.Check("bench", cfg); err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x6368617400000000))
	systems := systemPrompts(rng, cfg)
	questions := opticks.Questions()
	load := &Chat{cfg: cfg}
	for left := cfg.Requests; left > 0; {
		turns := make([]string, min(cfg.Turns, left))
		for i := range turns {
			turns[i] = "<|eot_id|>" + message("user", questions[rng.IntN(len(questions))]) + "<|eot_id|>" + header("assistant")
		}
		turns[0] = message("system", systems[rng.IntN(len(systems))]) + turns[0]
		load.conversations = append(load.conversations, conversation{turns})
		left -= len(turns)
	}
	return load, nil
}

// Requests returns the number of requests in the load.
func (c *Chat) Requests() int { return c.cfg.Requests }

func header(role string) string {
	return "<|start_header_id|>" + role + "<|end_header_id|>\n\n"
}

func message(role, text string) string { return header(role) + text }

// systemPrompts makes the system prompts. Each takes its pages from its own span of
// the book, so that no two share more than the first sentence.
func systemPrompts(rng *rand.Rand, cfg ChatConfig) []string {
	paragraphs := opticks.Paragraphs()
	prompts := make([]string, cfg.SystemPrompts)
	for i := range prompts {
		var b strings.Builder
		b.WriteString("You are a patient teacher of optics. Answer from these pages of the book, and say so when they do not tell.")
		span := len(paragraphs) / cfg.SystemPrompts
		for at := i*span + rng.IntN(max(span/2, 1)); b.Len() < cfg.SystemBytes && at < len(paragraphs); at++ {
			b.WriteString("\n\n" + paragraphs[at])
		}
		text := b.String()
		if len(text) > cfg.SystemBytes {
			text = text[:cfg.SystemBytes]
			text = text[:max(strings.LastIndexByte(text, ' '), 0)]
		}
		prompts[i] = text
	}
	return prompts
}

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
	p := &player{load: c, node: node, progress: orNothing(progress), run: &Run{}}
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
		p.progress()
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
