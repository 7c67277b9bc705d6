package sim

import (
	"fmt"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// prefix returns the hash of the tokens before r.Start, whose KV row r reads, and checks that KV
// as the mode says. finite is false if the row must fail because of that KV. ran is the state of
// the row's slot. err is not nil if the scheduler has mixed up pages.
func (p *pool) prefix(r *engine.Row, ran *progress) (hash uint64, finite bool, err error) {
	start := int(r.Start)
	if start == 0 {
		return p.root, true, nil
	}
	continues := ran.end == r.Start
	switch {
	case p.mode == Off:
		last := p.at(r.Pages, start-1)
		return last.hash, last.pos != posNaN && last.pos != posPoisoned, nil
	case p.mode == Boundary && continues:
		hash, finite, err = p.lastSlot(r)
	default:
		hash, finite, err = p.chain(r)
	}
	if err == nil && finite && continues && hash != ran.hash {
		err = p.corrupt(r.Pages[(start-1)>>p.shift], start-1, "reads another prefix than the last row of slot %d", r.Slot)
	}
	return hash, finite, err
}

// chain checks every KV slot of positions [0, Start), in mode Boundary only the first and the last
// slot of each page, and returns the results of prefix. A slot is checked against the slot before
// it, which may be on the previous page.
func (p *pool) chain(r *engine.Row) (hash uint64, finite bool, err error) {
	hash = p.root
	pos, ends := 0, p.mode == Boundary
	for _, id := range r.Pages {
		n := min(p.mask+1, int(r.Start)-pos)
		if n <= 0 {
			break
		}
		page := p.page(id)[:n]
		for i := 0; i < n; i++ {
			if ends && i > 0 {
				i = n - 1
				hash = page[i-1].hash
			}
			e := &page[i]
			hash = extend(hash, e.token)
			if int(e.pos) != pos+i || e.hash != hash {
				return 0, false, p.judge(e, id, pos+i)
			}
		}
		p.mark(id, n)
		pos += n
	}
	return hash, true, nil
}

// lastSlot checks only that the KV slot before Start has the right position. It returns the
// results of prefix.
func (p *pool) lastSlot(r *engine.Row) (hash uint64, finite bool, err error) {
	pos := int(r.Start) - 1
	id := r.Pages[pos>>p.shift]
	e := &p.slots[int(id)<<p.shift|pos&p.mask]
	if int(e.pos) != pos {
		return 0, false, p.judge(e, id, pos)
	}
	p.mark(id, pos&p.mask+1)
	return e.hash, true, nil
}

// mark records that the current batch reads the first n KV slots of page id.
func (p *pool) mark(id kv.PageID, n int) {
	m := &p.readers[id]
	if m.batch != p.batch {
		*m = reader{batch: p.batch}
	}
	m.slots = max(m.slots, int32(n))
}

// write fills the KV slots of row r from position pos on with tokens. hash is that of the prefix
// before pos; write returns the hash after the last token. A second write to a KV slot in one batch is an error. So
// is a write that changes a KV slot that an earlier row of the batch reads: on a device the rows
// run in parallel.
func (p *pool) write(r *engine.Row, pos int, tokens []kv.Token, hash uint64) (uint64, error) {
	for _, t := range tokens {
		hash = extend(hash, t)
		id := r.Pages[pos>>p.shift]
		at := int(id)<<p.shift | pos&p.mask
		e := &p.slots[at]
		if p.mode != Off {
			if p.written[at] == p.batch {
				return 0, p.corrupt(id, pos, "a second write to slot %d in one batch", pos&p.mask)
			}
			p.written[at] = p.batch
			if m := p.readers[id]; m.batch == p.batch && pos&p.mask < int(m.slots) && (int(e.pos) != pos || e.hash != hash) {
				return 0, p.corrupt(id, pos, "overwrites position %d, which an earlier row of the batch reads", e.pos)
			}
		}
		*e = entry{token: t, pos: int32(pos), hash: hash}
		pos++
	}
	return hash, nil
}

// copyPage copies the first c.Tokens KV slots of page c.Src to page c.Dst. Unless the mode is Off,
// it checks them first, see copyable.
func (p *pool) copyPage(c engine.PageCopy) error {
	src := p.page(c.Src)[:c.Tokens]
	if p.mode != Off {
		if err := p.copyable(c.Src, src); err != nil {
			return err
		}
	}
	copy(p.page(c.Dst), src)
	return nil
}

// copyable returns an error if src, the first KV slots of page id, are not consecutive tokens of
// one sequence. It allows NaN, and KV of a row whose failure the scheduler could not know yet.
func (p *pool) copyable(id kv.PageID, src []entry) error {
	first := int(src[0].pos)
	for i := range src {
		e := &src[i]
		pos := first + i
		if e.pos == posNaN || e.pos == posPoisoned && e.hash > p.known {
			return nil
		}
		if first < 0 || int(e.pos) != pos || i > 0 && e.hash != extend(src[i-1].hash, e.token) {
			err := p.judge(e, id, max(pos, i))
			return fmt.Errorf("copy of %d slots: %w", len(src), err)
		}
	}
	return nil
}

// judge classifies an entry e that does not belong at pos. It returns nil if the row merely
// fails: on NaN, as a model's row would, or on KV of a failed row in a batch whose outcome
// the scheduler could not know yet. Otherwise the scheduler has mixed up pages, and judge
// returns an error.
func (p *pool) judge(e *entry, page kv.PageID, pos int) error {
	switch {
	case e.pos == posNaN:
		return nil
	case e.pos == posPoisoned && e.hash > p.known:
		return nil
	case e.pos == posPoisoned:
		return p.corrupt(page, pos, "reads KV that a failed row of batch %d wrote", e.hash)
	case e.pos == posRefused:
		return p.corrupt(page, pos, "reads the KV of a draft that batch %d refused", e.hash)
	case e.pos == posNever:
		return p.corrupt(page, pos, "reads a slot that was never written")
	case int(e.pos) != pos:
		return p.corrupt(page, pos, "reads the slot of position %d (token %d)", e.pos, e.token)
	default:
		return p.corrupt(page, pos, "reads token %d after another prefix", e.token)
	}
}

// corrupt returns an error that wraps ErrCorrupt. It names the current batch and row, page,
// position pos of the row's sequence, and the text of format.
func (p *pool) corrupt(page kv.PageID, pos int, format string, args ...any) error {
	return fmt.Errorf("%w: batch %d, row %d, position %d, page %d: %s",
		ErrCorrupt, p.seq, p.row, pos, page, fmt.Sprintf(format, args...))
}
