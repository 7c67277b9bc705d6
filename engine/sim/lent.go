package sim

import (
	"fmt"
	"math"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/splitmix"
	"github.com/coppice-llm/coppice/kv"
)

// lent holds what belongs to the backend until a ticket completes: a batch, or the host memory of
// a move. The simulated device computes and copies at once; a real one does so
// at any time until then. So in the mode Full a lent batch, and the memory that a move reads, must
// not change, and the memory that a move writes has no KV before the move's end.
type lent struct {
	batch  *engine.Batch
	memory [][]byte
	bytes  []byte // of a move to the host: what memory gets at its end
	sum    uint64 // of batch or memory
}

// unwritten fills the memory of a pending move to the host. As an entry it has a position that no
// row reads.
const unwritten = 0xa5

// lendBatch begins to watch a batch.
func (l *lent) lendBatch(b *engine.Batch) { l.batch, l.sum = b, sumBatch(b) }

// lendMemory begins to watch the memory of a move. If the move goes to the host, the memory
// has its bytes, which lendMemory hides until the move's end.
func (l *lent) lendMemory(memory [][]byte, toHost bool) {
	l.memory = memory
	if toHost {
		for _, m := range memory {
			l.bytes = append(l.bytes, m...)
			for i := range m {
				m[i] = unwritten
			}
		}
	}
	l.sum = sumMemory(memory)
}

// release ends the watch. It returns an error that wraps ErrCorrupt if the caller has changed
// what it had lent.
func (l *lent) release() error {
	switch {
	case l.batch != nil && sumBatch(l.batch) != l.sum:
		return fmt.Errorf("%w: batch %d was changed while it was pending", ErrCorrupt, l.batch.Seq)
	case sumMemory(l.memory) != l.sum && l.memory != nil:
		return fmt.Errorf("%w: the host memory of a move was changed while the move was pending", ErrCorrupt)
	}
	for _, m := range l.memory {
		l.bytes = l.bytes[copy(m, l.bytes):]
	}
	return nil
}

func sumMemory(memory [][]byte) (sum uint64) {
	for _, m := range memory {
		sum = xxh3.HashSeed(m, sum)
	}
	return sum
}

// mixed is a hash of a sequence of numbers.
type mixed uint64

// sumBatch hashes a batch with all its slices.
func sumBatch(b *engine.Batch) uint64 {
	h := mixed(b.Seq)
	addList(&h, b.After)
	for i := range b.Binds {
		x := &b.Binds[i]
		h.add(uint64(x.Slot))
		addList(&h, x.Pages)
		addList(&h, x.Prompt)
		addList(&h, x.Output)
		h.addSampling(&x.Sampling)
	}
	for _, w := range b.Swaps {
		h.add(uint64(w.Slot), uint64(w.At), uint64(w.Page))
	}
	for _, c := range b.Copies {
		h.add(uint64(c.Src), uint64(c.Dst), uint64(c.Tokens))
	}
	addList(&h, b.Drops)
	for _, m := range b.Masks {
		h.add(uint64(m.ID))
		addList(&h, m.Bits)
	}
	for i := range b.Rows {
		r := &b.Rows[i]
		h.add(uint64(r.Slot), uint64(r.Start), uint64(r.SampleIndex), uint64(r.Mask), uint64(r.PromptTop),
			bit(r.Deferred)|bit(r.Sample)<<1|bit(r.Digest)<<2|bit(r.PromptLogprobs)<<3|uint64(r.Hidden)<<4)
		addList(&h, r.Tokens)
		addList(&h, r.Drafts)
		addList(&h, r.DraftMasks)
		addList(&h, r.Pages)
	}
	h.add(uint64(len(b.Binds)), uint64(len(b.Swaps)), uint64(len(b.Copies)), uint64(len(b.Masks)), uint64(len(b.Rows)))
	return uint64(h)
}

func addList[T kv.Token | kv.PageID | engine.MaskID | engine.MoveID | uint64](h *mixed, list []T) {
	h.add(uint64(len(list)))
	for _, v := range list {
		h.add(uint64(v))
	}
}

func (h *mixed) addSampling(p *engine.SamplingParams) {
	for _, f := range [...]float32{p.Temperature, p.TopP, p.MinP, p.RepetitionPenalty, p.PresencePenalty, p.FrequencyPenalty} {
		h.add(uint64(math.Float32bits(f)))
	}
	h.add(uint64(p.TopK), uint64(p.TopLogprobs), bit(p.Logprobs), p.Seed)
	for _, b := range p.Bias {
		h.add(uint64(b.Token), uint64(math.Float32bits(b.Bias)))
	}
}

func (h *mixed) add(values ...uint64) {
	for _, v := range values {
		*h = mixed(splitmix.Mix(uint64(*h)*splitmix.Golden + v + 1))
	}
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
