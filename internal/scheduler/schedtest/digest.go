package schedtest

import (
	"encoding/binary"
	"math"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool/tiering"
	"github.com/coppice-llm/coppice/scheduler"
)

// digest is a chain of XXH3-64: each link hashes the values of a plan, output or event together
// with the previous hash.
type digest struct {
	sum uint64
	buf []byte
}

// seal closes a link.
func (d *digest) seal() {
	d.sum = xxh3.HashSeed(d.buf, d.sum)
	d.buf = d.buf[:0]
}

func (d *digest) num(values ...uint64) {
	for _, v := range values {
		d.buf = binary.LittleEndian.AppendUint64(d.buf, v)
	}
}

func (d *digest) text(s string) {
	d.num(uint64(len(s)))
	d.buf = append(d.buf, s...)
}

func (d *digest) tokens(tokens []kv.Token) {
	d.num(uint64(len(tokens)))
	for _, t := range tokens {
		d.buf = binary.LittleEndian.AppendUint32(d.buf, uint32(t))
	}
}

func (d *digest) pages(pages []kv.PageID) {
	d.num(uint64(len(pages)))
	for _, p := range pages {
		d.buf = binary.LittleEndian.AppendUint32(d.buf, uint32(p))
	}
}

func (d *digest) plan(b *engine.Batch, moves []tiering.Move) {
	d.num(b.Seq, uint64(len(b.Binds)), uint64(len(b.Swaps)), uint64(len(b.Copies)), uint64(len(b.Rows)))
	for i := range b.Binds {
		bind := &b.Binds[i]
		d.num(uint64(bind.Slot), bind.Sampling.Seed, uint64(math.Float32bits(bind.Sampling.Temperature)))
		d.pages(bind.Pages)
		d.tokens(bind.Prompt)
		d.tokens(bind.Output)
	}
	for _, w := range b.Swaps {
		d.num(uint64(w.Slot), uint64(w.At), uint64(w.Page))
	}
	for _, c := range b.Copies {
		d.num(uint64(c.Src), uint64(c.Dst), uint64(c.Tokens))
	}
	for i := range b.Rows {
		r := &b.Rows[i]
		d.num(uint64(r.Slot), uint64(r.Start), bit(r.Deferred)|bit(r.Sample)<<1|bit(r.Digest)<<2, uint64(r.SampleIndex))
		d.tokens(r.Tokens)
		d.pages(r.Pages)
	}
	for _, id := range b.After {
		d.num(uint64(id))
	}
	for i := range moves {
		m := &moves[i]
		d.num(uint64(m.ID), uint64(m.Kind), uint64(m.From), uint64(m.To), uint64(m.Extent.Start), uint64(m.Deadline))
		d.pages(m.Pages)
		d.tokens(m.Extent.Tokens)
	}
	d.seal()
}

func (d *digest) output(o *scheduler.Output) {
	e := &o.Ending
	d.num(uint64(o.Request), bit(o.Sampled), uint64(o.Token), uint64(math.Float32bits(o.Logprob)), o.Digest,
		uint64(e.Reason), uint64(e.PromptTokens), uint64(e.CachedTokens), uint64(e.OutputTokens), uint64(e.Preemptions),
		uint64(e.Queued), uint64(e.FirstToken), uint64(e.Total))
	d.error(e.Err)
	d.seal()
}

func (d *digest) error(err error) {
	if err == nil {
		d.num(0)
		return
	}
	d.text(err.Error())
}

func (d *digest) event(ev *kv.Event) {
	d.num(uint64(ev.Kind), uint64(ev.Tier), uint64(ev.Parent), bit(ev.HasParent), uint64(len(ev.Blocks)), uint64(len(ev.Hashes)))
	d.text(ev.Namespace.Model)
	d.text(ev.Namespace.LoRA)
	d.text(ev.Namespace.Salt)
	for i := range ev.Blocks {
		d.num(uint64(ev.Blocks[i].Hash), uint64(ev.Blocks[i].Local))
	}
	for _, h := range ev.Hashes {
		d.num(uint64(h))
	}
	d.seal()
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
