package cuda

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// Positions per split of attention, as in attention.cuh.
const splitTokens = 256

// attentionLists has the work items of attention.
type attentionLists struct {
	prefill   part // {first token, count}: one block computes all splits
	splits    part // {index in data of its tokens, count, split, end}: one block computes one split
	passes    []pass
	maxSplits int // of the decoding tokens
}

// pass is a part of the work items splits, and the tokens whose states they compute: tokens [first,
// first+n) of the step. The states of a pass overwrite those of the one before.
type pass struct {
	splits    part
	first, n  int
	maxSplits int // of one token
}

// stateBytes returns the bytes of a split's states for one token, all heads.
func (d *device) stateBytes() int { return 4 * d.model.Heads * (d.model.HeadDim + 2) }

// tokenSplits returns the number of splits of a token at the last position.
func (d *device) tokenSplits() int { return blocks(d.perSlot*d.cfg.PageTokens, splitTokens) }

// statesRoom returns the size of the buffer of split states in bytes. A step that needs more runs its
// attention in several passes.
func (d *device) statesRoom() int {
	token := d.tokenSplits() * d.stateBytes()
	return max(token, min(token*max(d.cfg.MaxRows, d.cfg.MaxTokens), d.cfg.statesMost))
}

// passTokens returns the number of tokens of a pass, each of which has up to splits splits.
func (d *device) passTokens(splits int) int { return max(d.statesRoom()/(splits*d.stateBytes()), 1) }

// onePass reports whether one pass computes the decoding rows of b.
func (p *planner) onePass(b *engine.Batch) bool {
	most := 1
	for i := range b.Rows {
		most = max(most, int(b.Rows[i].Start)/splitTokens+1)
	}
	return len(b.Rows) <= p.passTokens(most)
}

// group returns the number of query heads of a KV head. A work item has up to 64 rows, which are group
// query heads of up to 64/group tokens.
func (d *device) group() int { return d.model.Heads / d.model.KVHeads }

// attention makes the work items of attention. A prompt is cut into items of up to 64/group tokens. A
// decoding token has an item for each split of its context; tokens with the same pages in a full split
// share an item. So have the tokens of prompts that are too short to use all multiprocessors: few new
// tokens after a long cached prefix.
func (p *planner) attention(b *engine.Batch) {
	s := &p.lists
	s.prefill, s.splits, s.order = s.prefill[:0], s.splits[:0], s.order[:0]
	p.maxSplits = 0
	for _, i := range p.decodes {
		p.maxSplits = max(p.maxSplits, int(b.Rows[i].Start)/splitTokens+1)
	}
	for lo := 0; lo < len(p.decodes); {
		hi := min(lo+p.passTokens(p.maxSplits), len(p.decodes))
		p.decodePass(b, lo, hi)
		lo = hi
	}
	p.promptItems(b)
	p.prefill = p.list(2, 0, s.prefill...)
	p.splits = p.list(4, p.size(&p.sizes.splits, len(s.splits)/4, 1, math.MaxInt), s.splits...)
}

// decodePass makes the items of the decoding tokens [lo, hi).
func (p *planner) decodePass(b *engine.Batch, lo, hi int) {
	s, per := &p.lists, 64/p.group()
	x := pass{splits: part{at: len(s.splits) / 4}, first: lo, n: hi - lo, maxSplits: p.maxSplits}
	for split := range p.maxSplits {
		groups := s.groups[:0]        // rows with equal pages in the split
		byPage := map[kv.PageID]int{} // first page of the split -> group
		for _, i := range p.decodes[lo:hi] {
			r := &b.Rows[i]
			end := int(r.Start) + 1
			if end <= split*splitTokens {
				continue
			}
			if end < (split+1)*splitTokens {
				p.item(split, end, p.listTokens(p.first[i], 1), 1)
				continue
			}
			pages := splitPages(p.pages.Of(r.Slot), split, p.cfg.PageTokens)
			g, ok := byPage[pages[0]]
			if !ok || !slices.Equal(splitPages(p.pages.Of(b.Rows[groups[g][0]].Slot), split, p.cfg.PageTokens), pages) {
				g = len(groups)
				byPage[pages[0]] = g
				groups = append(groups, nil)
			}
			groups[g] = append(groups[g], i)
		}
		for _, g := range groups {
			for len(g) > 0 {
				n := min(len(g), per)
				at := len(s.order)
				for _, i := range g[:n] {
					p.listTokens(p.first[i], 1)
				}
				p.item(split, (split+1)*splitTokens, at, n)
				g = g[n:]
			}
		}
		s.groups = groups
	}
	x.splits.n = len(s.splits)/4 - x.splits.at
	p.passes = append(p.passes, x)
}

// listTokens appends the tokens [first, first+n) to the list that items point into, and returns their index.
func (p *planner) listTokens(first, n int) int {
	at := len(p.lists.order)
	for i := range n {
		p.lists.order = append(p.lists.order, int32(first+i))
	}
	return at
}

// item appends the item of a split, up to position end, of the n tokens from index at of the list.
func (p *planner) item(split, end, at, n int) {
	p.lists.splits = append(p.lists.splits, int32(at), int32(n), int32(split), int32(min(end, (split+1)*splitTokens)))
}

// promptItems makes the items of prompts.
func (p *planner) promptItems(b *engine.Batch) {
	s, per, items := &p.lists, 64/p.group(), 0
	for i := range b.Rows {
		if n := b.Rows[i].Len(); n > 1 {
			items += blocks(n, per)
		}
	}
	apart := items*p.model.KVHeads < p.multiprocessors
	for i := range b.Rows {
		r := &b.Rows[i]
		n, splits := r.Len(), blocks(int(r.Start)+r.Len(), splitTokens)
		if n > 1 && apart && splits > 1 {
			p.promptPasses(r, p.first[i], splits)
			continue
		}
		for at := 0; n > 1 && at < n; at += per {
			s.prefill = append(s.prefill, int32(p.first[i]+at), int32(min(per, n-at)))
		}
	}
}

// promptPasses makes the items of row r, whose first token is first, by split.
func (p *planner) promptPasses(r *engine.Row, first, splits int) {
	s, per := &p.lists, 64/p.group()
	most := max(p.passTokens(splits)/per*per, 1)
	for lo := 0; lo < r.Len(); lo += most {
		hi := min(lo+most, r.Len())
		x := pass{splits: part{at: len(s.splits) / 4}, first: first + lo, n: hi - lo, maxSplits: splits}
		for at := lo; at < hi; at += per {
			n := min(per, hi-at)
			index, end := p.listTokens(first+at, n), int(r.Start)+at+n
			for split := range blocks(end, splitTokens) {
				p.item(split, end, index, n)
			}
		}
		x.splits.n = len(s.splits)/4 - x.splits.at
		p.passes = append(p.passes, x)
	}
}

// attentionTokens appends the tokens of all items to data and adds the list's index to the items, which
// so far count from the start of the list. It is the last list of data: its length varies, and the
// offsets of other lists must not depend on it.
func (p *planner) attentionTokens() {
	first := uint32(p.list(1, 0, p.lists.order...).at / 4)
	for i := range p.splits.n {
		at := p.data[p.splits.at+16*i:]
		binary.LittleEndian.PutUint32(at, first+binary.LittleEndian.Uint32(at))
	}
}

// splitPages returns the pages of split s, which must be full.
func splitPages(pages []kv.PageID, s, pageTokens int) []kv.PageID {
	return pages[s*splitTokens/pageTokens : (s+1)*splitTokens/pageTokens]
}
