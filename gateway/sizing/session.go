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
	tokens []kv.Token // zeros: only their number counts
}

// set makes p the prompt of session number id, with this many tokens.
func (p *prompt) set(cfg *Config, id, tokens int) {
	p.locals, p.hashes = p.locals[:0], p.hashes[:0]
	base := splitmix.Mix(cfg.Seed + uint64(id)*splitmix.Golden)
	for i := range cfg.blocks(tokens) {
		local := kv.LocalHash(splitmix.Mix(base + uint64(i)))
		hash := kv.BlockHash(local)
		if i > 0 {
			hash = kv.Chain(p.hashes[i-1], local)
		}
		p.locals, p.hashes = append(p.locals, local), append(p.hashes, hash)
	}
	for len(p.tokens) < tokens {
		p.tokens = append(p.tokens, 0)
	}
	p.ask.Reset()
	p.ask.SetPrompt(p.tokens[:tokens], kv.Namespace{}, 0, cfg.BlockTokens, &textcache.Blocks{Locals: p.locals, Hashes: p.hashes})
	p.ask.Request.PromptTokens, p.ask.Exact = tokens, true
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
