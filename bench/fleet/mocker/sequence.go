package mocker

import "github.com/coppice-llm/coppice/kv"

// sequence is the state of a request, waiting or running. Only running sequences hold slots.
type sequence struct {
	req      *Request
	prompt   int            // tokens
	tokens   int            // prompt and output so far
	computed int            // tokens with KV, counting the pass in progress
	reached  int            // largest value of computed at the end of any pass; computing tokens below it counts as Recomputed
	chunk    int            // tokens that the pass in progress adds to computed
	slots    []slot         // the sequence's blocks in order, if it is running
	named    int            // number of leading slots with names
	hashes   []kv.BlockHash // of all blocks named since the first admission, kept over preemptions
	decoding bool           // all tokens but the last have KV, so each pass outputs one more
	resumed  bool           // preempted at least once
	gone     bool           // preempted while the next pass is composed
}

// output returns the number of output tokens so far.
func (s *sequence) output() int { return s.tokens - s.prompt }

// cachedNames returns the hashes of the blocks that may be cached when the sequence is admitted:
// those of the prompt, and after a preemption also those of its output.
func (s *sequence) cachedNames(blockTokens int) []kv.BlockHash {
	if s.resumed && len(s.hashes) > 0 {
		return s.hashes
	}
	return s.req.Hashes[:min(len(s.req.Hashes), s.prompt/blockTokens)]
}

// local returns the local hash of block number index (from 0) of the sequence. The block may
// contain output tokens. scratch is memory for one block.
func (s *sequence) local(index, blockTokens int, scratch *[]kv.Token) kv.LocalHash {
	from, to := index*blockTokens, (index+1)*blockTokens
	if to <= s.prompt {
		return s.req.Locals[index]
	}
	tokens := (*scratch)[:0]
	if from < s.prompt {
		tokens = append(tokens, s.req.Tokens[from:]...)
	}
	tokens = append(tokens, s.req.Output[max(0, from-s.prompt):to-s.prompt]...)
	*scratch = tokens
	return kv.HashLocal(tokens, kv.Namespace{}.Seed())
}
