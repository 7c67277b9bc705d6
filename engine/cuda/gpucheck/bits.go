package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cuda"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/kv"
)

// sized compares bits on a backend of the measured model, whose products and attention use other kernels
// and shapes than those of a small one.
type sized struct {
	b       *cuda.Backend
	info    engine.Info
	seq     uint64
	prompt  []kv.Token
	common  []kv.PageID // pages of all of the prompt but the last token
	next    kv.PageID   // the first free page
	digest  uint64      // of the logits after the prompt, computed in one piece
	sampled kv.Token    // from these logits
}

// bitsAtSize compares the logits after a prompt that runs in one piece with those of the same prompt after
// a cached part, of its last token decoded alone and in batches, and of guesses at the tokens after it.
func bitsAtSize(ctx context.Context, cfg *Config, r *Report) error {
	b, err := openMeasured(cfg, r, random.Repeated(cfg.Model, 1))
	if err != nil {
		return err
	}
	return errors.Join(sameAtSize(ctx, cfg, r, b, "bits at size/", cfg.Batches), b.Close())
}

// sameAtSize does the comparisons on a new backend. name begins the names of the checks.
func sameAtSize(ctx context.Context, cfg *Config, r *Report, b *cuda.Backend, name string, batches []int) error {
	s := &sized{b: b, info: b.Info()}
	n := min(513, cfg.Prompt/16*16-15) // a whole number of pages and one token
	for i := range n {
		s.prompt = append(s.prompt, kv.Token(uint32(i)*2654435761%uint32(s.info.Vocab)))
	}
	if err := s.whole(); err != nil {
		return err
	}
	r.check(cfg, name+"after a cached prefix", s.cached(), "")
	for _, rows := range batches {
		if err := ctx.Err(); err != nil {
			return err
		}
		r.check(cfg, fmt.Sprintf("%sdecoded in a batch of %d", name, rows), s.decoded(rows), "")
	}
	r.check(cfg, name+"drafts", s.drafts(), "")
	return nil
}

// take returns n free pages.
func (s *sized) take(n int) (pages []kv.PageID) {
	for range n {
		pages = append(pages, s.next)
		s.next++
	}
	return pages
}

// run submits a batch and returns the outputs of its rows, which all have some.
func (s *sized) run(b *engine.Batch) ([]engine.RowOut, error) {
	s.seq++
	b.Seq = s.seq
	t, err := s.b.Submit(b)
	if err != nil {
		return nil, err
	}
	<-t.Done()
	res, err := t.Result()
	if err != nil {
		return nil, err
	}
	for _, o := range res.Out {
		if o.Err != nil {
			return nil, o.Err
		}
	}
	if len(res.Out) != len(b.Rows) {
		return nil, fmt.Errorf("%d outputs for %d rows", len(res.Out), len(b.Rows))
	}
	return res.Out, nil
}

// whole computes the prompt in one piece, and keeps its pages but the last.
func (s *sized) whole() error {
	pages := s.take(kv.CeilPages(len(s.prompt), s.info.PageTokens))
	out, err := s.run(&engine.Batch{Binds: []engine.SlotBind{{Pages: pages}}, Rows: []engine.Row{{Tokens: s.prompt, Sample: true, Digest: true}}})
	if err != nil {
		return err
	}
	s.common, s.digest, s.sampled = pages[:len(pages)-1], out[0].Digest, out[0].Token
	return nil
}

func (s *sized) same(what string, digest, want uint64) error {
	if digest != want {
		return fmt.Errorf("%s: logits %016x, want %016x", what, digest, want)
	}
	return nil
}

// cached computes the second half of the prompt after the pages of the first half.
func (s *sized) cached() error {
	keep := (len(s.common) + 1) / 2
	from := keep * s.info.PageTokens
	pages := slices.Concat(s.common[:keep], s.take(kv.CeilPages(len(s.prompt), s.info.PageTokens)-keep))
	out, err := s.run(&engine.Batch{Binds: []engine.SlotBind{{Pages: pages}}, Rows: []engine.Row{{Start: int32(from), Tokens: s.prompt[from:], Sample: true, Digest: true}}})
	if err != nil {
		return err
	}
	return s.same(fmt.Sprintf("%d tokens after %d", len(s.prompt)-from, from), out[0].Digest, s.digest)
}

// decoded decodes the prompt's last token in a batch of many rows. Rows have the prompt's pages in common,
// and every second row has another last token.
func (s *sized) decoded(rows int) error {
	last, batch := len(s.prompt)-1, &engine.Batch{}
	for i := range rows {
		slot := engine.Slot(i)
		batch.Binds = append(batch.Binds, engine.SlotBind{Slot: slot, Pages: slices.Concat(s.common, s.take(1))})
		batch.Rows = append(batch.Rows, engine.Row{Slot: slot, Start: int32(last), Tokens: []kv.Token{(s.prompt[last] + kv.Token(i%2)) % kv.Token(s.info.Vocab)}, Sample: true, Digest: true})
	}
	out, err := s.run(batch)
	if err != nil {
		return err
	}
	for i := 0; i < rows; i += 2 {
		err = errors.Join(err, s.same(fmt.Sprintf("row %d", i), out[i].Digest, s.digest))
	}
	return err
}

// drafts decodes two tokens after the prompt one by one, then as guesses.
func (s *sized) drafts() error {
	last, tokens := len(s.prompt)-1, []kv.Token{s.prompt[len(s.prompt)-1]}
	var digests []uint64
	pages := slices.Concat(s.common, s.take(1))
	for i := range 3 {
		batch := &engine.Batch{Rows: []engine.Row{{Start: int32(last + i), Tokens: tokens[i:], Sample: true, Digest: true, SampleIndex: int32(i)}}}
		if i == 0 {
			batch.Binds = []engine.SlotBind{{Pages: pages}}
		}
		out, err := s.run(batch)
		if err != nil {
			return err
		}
		tokens, digests = append(tokens, out[0].Token), append(digests, out[0].Digest)
	}
	out, err := s.run(&engine.Batch{Binds: []engine.SlotBind{{Pages: slices.Concat(s.common, s.take(1))}},
		Rows: []engine.Row{{Start: int32(last), Tokens: tokens[:1], Drafts: tokens[1:3], Sample: true, Digest: true}}})
	if err != nil {
		return err
	}
	o := out[0]
	if o.Confirmed != 2 || o.Token != tokens[3] {
		return fmt.Errorf("of the guesses %v, which are right, %d are confirmed, and %d follows, want %d", tokens[1:3], o.Confirmed, o.Token, tokens[3])
	}
	for i, d := range o.Drafts {
		err = errors.Join(err, s.same(fmt.Sprintf("guess %d", i), d.Digest, digests[i]))
	}
	return errors.Join(err, s.same("after the guesses", o.Digest, digests[2]))
}
