package bench

import (
	"math/rand/v2"
	"strings"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/internal/opticks"
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

func (c ChatConfig) withDefaults() ChatConfig { return bounds.Fill(c) }

// validate reports all faults at once, by field and value.
func (c ChatConfig) validate() error { return bounds.Check("bench", c) }

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
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
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
