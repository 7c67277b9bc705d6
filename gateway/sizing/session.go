package sizing

import (
	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/gateway/internal/dispatch"
	"github.com/coppice-llm/coppice/internal/splitmix"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer/textcache"
)

// session is a conversation. Its blocks follow from its number and the seed, so they take no memory.
type session struct {
	tokens int
	open   bool // a request of it is open
}

// prompt holds the block hashes of one prompt, and the request that has them. Its memory is reused.
type prompt struct {
	ask    dispatch.Ask
	locals []kv.LocalHash
	hashes []kv.BlockHash
}

// zeros are the tokens of all prompts: only their number counts. It returns at least this many.
func (p *play) zeros(tokens int) []kv.Token {
	p.zeroing.Lock()
	defer p.zeroing.Unlock()
	if len(p.zero) < tokens {
		p.zero = make([]kv.Token, 2*tokens)
	}
	return p.zero[:tokens]
}

// set makes one the prompt of session number id, with this many tokens.
func (p *play) set(one *prompt, id, tokens int) {
	one.locals, one.hashes = one.locals[:0], one.hashes[:0]
	base := splitmix.Mix(p.cfg.Seed + uint64(id)*splitmix.Golden)
	for i := range p.cfg.blocks(tokens) {
		local := kv.LocalHash(splitmix.Mix(base + uint64(i)))
		hash := kv.BlockHash(local)
		if i > 0 {
			hash = kv.Chain(one.hashes[i-1], local)
		}
		one.locals, one.hashes = append(one.locals, local), append(one.hashes, hash)
	}
	one.ask.Reset()
	one.ask.SetPrompt(p.zeros(tokens), kv.Namespace{}, 0, p.cfg.BlockTokens, &textcache.Blocks{Locals: one.locals, Hashes: one.hashes})
	one.ask.Request.PromptTokens, one.ask.Exact = tokens, true
}

// batchBlocks is the number of blocks that a worker announces at a time: those of a step of 8,192 tokens in
// blocks of 16.
const batchBlocks = 512

// store announces the blocks of p from index from on as cached by worker w, in batches, as the
// worker's events would. It stops at the first batch that the index refuses. scratch is reused.
func (p *prompt) store(sink events.Sink, w kv.Rank, from int, scratch []events.Block) ([]events.Block, error) {
	for from < len(p.locals) {
		scratch = scratch[:0]
		s := events.Stored{Tier: kv.TierDevice}
		if from > 0 {
			s.Parent, s.HasParent = p.hashes[from-1], true
		}
		end := min(from+batchBlocks, len(p.locals))
		for i := from; i < end; i++ {
			scratch = append(scratch, events.Block{Hash: p.hashes[i], Local: p.locals[i]})
		}
		s.Blocks = scratch
		if err := sink.Store(w, s); err != nil {
			return scratch, err
		}
		from = end
	}
	return scratch, nil
}
