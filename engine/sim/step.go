package sim

import (
	"fmt"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// progress is the state of an engine slot's sequence since its bind.
type progress struct {
	end  int32  // the last row ended at this position; 0 if none ran or it failed
	hash uint64 // hash of the tokens before position end
	// last is the token sampled for position lastAt; sampled is false if there is none, or
	// the sample failed.
	last    kv.Token
	lastAt  int32
	sampled bool
	drafted uint64 // Seq of the last batch with drafts in the slot; 0: none
}

// device computes each batch when it is submitted. A caller cannot see the result before the
// ticket completes, so it cannot notice.
type device struct {
	pool  *pool
	draw  *sampler
	slots []progress
	fail  func(seq uint64, row int) error
	one   [1]kv.Token // the token of a deferred row
	now   engine.Row  // the running row, with all its pages

	tables  engine.Tables
	masks   engine.Masks
	before  engine.Submitted
	unmoved map[kv.PageID]bool // pages of failed moves that no batch has written since
	pending uint64             // Seq of the oldest batch whose ticket is pending; the largest uint64 if there is none
}

// run computes b into res. known is the argument of pool.begin. The error is the sanitizer's;
// after it the pool is unusable.
func (d *device) run(b *engine.Batch, known uint64, res *engine.Result) error {
	d.pool.begin(b.Seq, known)
	res.Seq = b.Seq
	for i := range b.Binds {
		d.draw.bind(&b.Binds[i])
		d.slots[b.Binds[i].Slot] = progress{}
	}
	for i, c := range b.Copies {
		d.pool.row = -1
		if d.copied(c) {
			continue
		}
		if err := d.pool.copyPage(c); err != nil {
			return fmt.Errorf("copy %d: %w", i, err)
		}
	}
	res.Stats.CopiedPages = len(b.Copies)
	outs := 0
	for i := range b.Rows {
		if speaks(&b.Rows[i]) {
			outs++
		}
	}
	if outs > 0 {
		res.Out = make([]engine.RowOut, 0, outs)
	}
	for i := range b.Rows {
		if err := d.row(b, i, res); err != nil {
			return err
		}
	}
	return nil
}

// row runs row i of b and adds its results to res. The error is the sanitizer's.
func (d *device) row(b *engine.Batch, i int, res *engine.Result) error {
	d.now = b.Rows[i]
	r := &d.now
	r.Pages = d.tables.Of(r.Slot)[:(int(r.Start)+r.Len()+d.pool.mask)>>d.pool.shift]
	d.pool.row = i
	ran := &d.slots[r.Slot]
	tokens, known, err := d.tokens(r, ran)
	if err != nil {
		return err
	}
	count(r, &res.Stats)
	hash, finite, void := uint64(0), false, d.void(r)
	if known && !void {
		if hash, finite, err = d.pool.prefix(r, ran); err != nil {
			return err
		}
	}
	after, err := d.pool.write(r, int(r.Start), tokens, hash)
	if err == nil {
		_, err = d.pool.write(r, int(r.Start)+r.Own(), r.Drafts, after)
	}
	if err != nil {
		return err
	}
	out := engine.RowOut{Row: i}
	switch {
	case !known:
		out.Err = fmt.Errorf("%w: row %d has no token, the last sample of slot %d failed", engine.ErrLogits, i, r.Slot)
	case void:
		out.Err = fmt.Errorf("%w: row %d reads a page that a failed move did not write", engine.ErrMove, i)
	case !finite:
		out.Err = fmt.Errorf("%w: row %d reads KV that is NaN or of a failed row", engine.ErrLogits, i)
	case d.fail != nil:
		out.Err = d.fail(b.Seq, i)
	}
	if out.Err != nil {
		d.pool.poison(r)
		*ran = progress{}
		res.Out = append(res.Out, out)
		return nil
	}
	if r.PromptLogprobs {
		d.draw.prompt(r, tokens, d.pool, ran, &out)
	}
	d.hidden(r, after, &out)
	d.advance(r, i, after, ran, &out)
	if r.Sample && out.Err == nil {
		res.Stats.Samples += 1 + int(out.Confirmed)
		res.Stats.Confirmed += int(out.Confirmed)
	}
	if speaks(r) {
		res.Out = append(res.Out, out)
	}
	return nil
}

// speaks reports whether a row has an entry in Result.Out even if it does not fail.
func speaks(r *engine.Row) bool {
	return r.Sample || r.Digest || r.PromptLogprobs || r.Hidden != engine.HiddenNone
}

// advance records in ran, the state of row r's slot, that r has run, and samples if r asks for it.
// i is the index of r in its batch, after the hash of the prefix up to the end of r's own tokens.
// The KV of refused drafts becomes garbage.
func (d *device) advance(r *engine.Row, i int, after uint64, ran *progress, out *engine.RowOut) {
	end := r.Start + int32(r.Own())
	ran.end, ran.hash = end, after
	if !r.Sample && !r.Digest {
		return
	}
	hash := after
	for n := 0; d.draw.sample(r, i, d.masks.Of(r.MaskAt(n)), hash, out); n++ {
		hash = extend(hash, r.Drafts[n])
	}
	if out.Err == nil {
		ran.end, ran.hash = end+out.Confirmed, hash
	}
	if len(r.Drafts) > 0 {
		d.pool.refuse(r, int(ran.end))
		ran.drafted = d.pool.seq
	}
	if r.Sample || out.Err != nil {
		ran.last, ran.lastAt, ran.sampled = out.Token, ran.end, out.Err == nil
	}
}

// tokens returns the own tokens of row r. known is false for a deferred row after a failed
// sample: the scheduler could not know of the failure, so the row runs on garbage.
func (d *device) tokens(r *engine.Row, ran *progress) (tokens []kv.Token, known bool, err error) {
	if ran.drafted >= d.pending && d.pool.mode != Off {
		return nil, false, d.pool.corrupt(r.Pages[int(r.Start)>>d.pool.shift], int(r.Start),
			"submitted before batch %d was complete, which has drafts in slot %d", ran.drafted, r.Slot)
	}
	if !r.Deferred {
		return r.Tokens, true, nil
	}
	d.one[0] = ran.last
	if ran.sampled && ran.lastAt != r.Start && d.pool.mode != Off {
		return nil, false, d.pool.corrupt(r.Pages[int(r.Start)>>d.pool.shift], int(r.Start),
			"deferred, but the last token of slot %d belongs at position %d", r.Slot, ran.lastAt)
	}
	return d.one[:], ran.sampled, nil
}

// count adds a row, failed or not, to the statistics.
func count(r *engine.Row, s *engine.StepStats) {
	n := int64(r.Len())
	s.Drafted += len(r.Drafts)
	s.GivenTokens += int(n)
	if r.Deferred {
		s.GivenTokens--
		s.DeferredTokens++
	}
	s.KVTokensRead += n*int64(r.Start) + n*(n+1)/2
}
