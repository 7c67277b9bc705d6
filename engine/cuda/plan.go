package cuda

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/kv"
)

// Flags and results of sample.cu.
const (
	flagPenalised = 1
	flagDraw      = 2

	drawnOK       = 0
	drawnNaN      = 1
	drawnNoToken  = 2
	drawnFailed   = 3
	sampleRowSize = 72
)

// part is a list in one of a plan's buffers: its offset in bytes and its number of entries.
type part struct{ at, n int }

// plan is one step in the form that the kernels read: two buffers, data and more, which are
// uploaded in one copy, and the offsets of the lists in them. The kernels of a graph read only
// data, at offsets that depend on nothing but sizes.
type plan struct {
	data, more []byte
	sizes      sizes
	graph      bool // sizes are rounded up
	rows       int
	tokenLists
	slotLists
	attentionLists
	logitLists
	promptLists
	stats engine.StepStats
}

// tokenLists has lists with an entry for each token: first the tokens of rows of one token, then
// the tokens of longer rows.
type tokenLists struct {
	tokens   int
	decoding int // decoding tokens: those of rows of one token

	ids, slots, positions, rowOf part
	rowSlots                     part // by row
}

// slotLists has the changes of slots, pages and masks before any row runs.
type slotLists struct {
	cleared, clearedCounted part   // in more: newly bound slots; those with penalty counts
	counted                 part   // in more: {slot, token, 1 if in the prompt}
	copies                  []part // in more: {from, to, tokens}, one launch each
	tables                  part   // {slot, index, page}
	tablesFirst             bool   // tables is in more, and written before anything else
	written                 part   // space for the entries that a graph writes
	masks                   []maskRun
}

// maskRun is a run of masks with successive ids, which are contiguous in the buffer more and on
// the device.
type maskRun struct {
	at    int // offset in the buffer more
	first engine.MaskID
	n     int // number of masks
}

// logitLists has lists by sample: first sample 0 of each row with logits, in the order of rows, then
// sample 1 of each row with drafts, and so on.
type logitLists struct {
	want          part // index of the token that it follows
	draws, biases part // sampling parameters; biases of all rows
	topK          part // number of most probable tokens that the row asks for
	samples       []drawnSample
	top           int   // highest asked of samples, -1 if there is none
	turns         []int // by number of the sample: end of its entries
	digests       bool
}

// drawnSample is a sample or the digest of a row, as the plan and its outcome know it.
type drawnSample struct {
	row   int // the row's index in the batch
	asked int // number of most probable tokens that the row asks for, -1 if it asks for no log-probabilities
	then  int // index of the row's next sample, -1 if there is none
}

// planner makes plans and keeps its scratch. It belongs to the launching goroutine.
type planner struct {
	*device
	plan
	redo    redo
	after   []engine.MoveID // the batch's
	first   []int           // by row: its first token
	decodes []int           // rows of one token

	newMasks []engine.MaskSet // scratch
	lists    lists
}

// lists has the values of a plan's lists before they are laid out, as scratch.
type lists struct {
	ids, slots, positions, rowOf, entries, rowSlots []int32
	prefill, splits, order                          []int32
	groups                                          [][]int
	want, topK                                      []int32
	sampled                                         []int // by row: index of its last sample so far
}

// make plans a batch, and updates the host's copy of page tables and parameters. The plan is valid
// until the next call, and nothing reads the batch afterwards but the result of its rows.
func (p *planner) make(b *engine.Batch) {
	p.after = append(p.after[:0], b.After...)
	passes := p.passes[:0]
	p.plan = plan{data: p.data[:0], more: p.more[:0], graph: p.graphs.fit(b) && p.onePass(b), rows: len(b.Rows), slotLists: slotLists{copies: p.copies[:0], masks: p.masks[:0]}, logitLists: logitLists{top: -1, samples: p.samples[:0], turns: p.turns[:0]},
		promptLists: promptLists{spans: p.spans[:0]}}
	p.passes = passes
	p.list(1, liveCounts)
	p.binds(slices.Concat(p.redo.binds, b.Binds))
	p.pageCopies(slices.Concat(p.redo.copies, b.Copies))
	p.setMasks(b.Masks)
	p.layOut(b)
	p.attention(b)
	p.logits(b)
	p.prompts(b)
	p.attentionTokens()
	p.live()
	p.stats.CopiedPages = len(b.Copies)
}

// binds plans binds, and clears the slots of rows that have failed for lack of memory. If a slot is bound
// several times, the last bind counts.
func (p *planner) binds(binds []engine.SlotBind) {
	var plain, penalised, entries []int32
	for i := range binds {
		bind := &binds[i]
		if slices.ContainsFunc(binds[i+1:], func(x engine.SlotBind) bool { return x.Slot == bind.Slot }) {
			continue
		}
		p.params[bind.Slot], p.kept[bind.Slot] = bind.Sampling, 0
		p.params[bind.Slot].Bias = slices.Clone(bind.Sampling.Bias)
		if !bind.Sampling.Penalised() {
			plain = append(plain, int32(bind.Slot))
			continue
		}
		penalised = append(penalised, int32(bind.Slot))
		for output, tokens := range [][]kv.Token{bind.Prompt, bind.Output} {
			for _, t := range tokens {
				if int64(t) < int64(p.model.Vocab) {
					entries = append(entries, int32(bind.Slot), int32(t), int32(1-output))
				}
			}
		}
	}
	for _, s := range p.redo.failed {
		if slot := int32(s); !slices.Contains(plain, slot) && !slices.Contains(penalised, slot) {
			plain = append(plain, slot)
		}
	}
	p.cleared, p.clearedCounted, p.counted = p.before(1, plain...), p.before(1, penalised...), p.before(3, entries...)
}

// pageCopies distributes page copies over launches. Within a launch no copy touches a
// page that another copy writes, so the result is that of copying one after another.
func (p *planner) pageCopies(copies []engine.PageCopy) {
	var launch []int32
	touched, written := map[kv.PageID]bool{}, map[kv.PageID]bool{}
	flush := func() {
		if len(launch) > 0 {
			p.copies = append(p.copies, p.before(3, launch...))
			launch = launch[:0]
			clear(touched)
			clear(written)
		}
	}
	for _, c := range copies {
		if written[c.Src] || touched[c.Dst] {
			flush()
		}
		touched[c.Src], touched[c.Dst], written[c.Dst] = true, true, true
		launch = append(launch, int32(c.Src), int32(c.Dst), c.Tokens)
	}
	flush()
}

// setMasks appends the bits of masks to set to the buffer more: the last bits for each mask. A dropped
// mask needs no work: no row names it.
func (p *planner) setMasks(masks []engine.MaskSet) {
	p.before(1) // aligns more
	p.newMasks = append(append(p.newMasks[:0], p.redo.masks...), masks...)
	slices.SortStableFunc(p.newMasks, func(x, y engine.MaskSet) int { return cmp.Compare(x.ID, y.ID) })
	for i, m := range p.newMasks {
		if i+1 < len(p.newMasks) && p.newMasks[i+1].ID == m.ID {
			continue
		}
		if n := len(p.masks); n > 0 && p.masks[n-1].first+engine.MaskID(p.masks[n-1].n) == m.ID {
			p.masks[n-1].n++
		} else {
			p.masks = append(p.masks, maskRun{len(p.more), m.ID, 1})
		}
		for _, w := range m.Bits {
			p.more = binary.LittleEndian.AppendUint64(p.more, w)
		}
	}
	clear(p.newMasks)
}

// layOut lists the tokens of all rows: first the tokens of rows of one token, then those of longer
// rows.
func (p *planner) layOut(b *engine.Batch) {
	s := &p.lists
	s.ids, s.slots, s.positions, s.rowOf, s.entries, s.rowSlots = s.ids[:0], s.slots[:0], s.positions[:0], s.rowOf[:0], s.entries[:0], s.rowSlots[:0]
	p.first, p.decodes = slices.Grow(p.first[:0], len(b.Rows))[:len(b.Rows)], p.decodes[:0]
	for _, single := range []bool{true, false} {
		for i := range b.Rows {
			r := &b.Rows[i]
			if (r.Len() == 1) != single {
				continue
			}
			if single {
				p.decodes = append(p.decodes, i)
			}
			p.first[i] = len(s.ids)
			p.layOutRow(r, int32(i))
		}
	}
	for i := range b.Rows {
		s.rowSlots = append(s.rowSlots, int32(b.Rows[i].Slot))
	}
	entries := p.tableEntries(b, s.entries)
	s.entries = entries
	p.tokens, p.decoding = len(s.ids), len(p.decodes)
	n := p.size(&p.sizes.tokens, p.tokens, 16, p.cfg.MaxRows)
	p.ids, p.slots, p.positions, p.rowOf = p.list(1, n, s.ids...), p.list(1, n, s.slots...), p.list(1, n, s.positions...), p.list(1, n, s.rowOf...)
	p.rowSlots = p.list(1, n, s.rowSlots...)
	if p.tablesFirst = !p.graph || len(entries) > 3*n; p.tablesFirst {
		p.tables, entries = p.before(3, entries...), nil
	}
	if p.graph {
		p.written = p.list(3, n, entries...)
	}
	if !p.tablesFirst {
		p.tables = p.written
	}
}

// layOutRow lists the tokens of row r, which has index i. Of its drafts, the row of tokens is the one
// after the last: they do not fail the row if their x is not finite, but their samples do if they are
// confirmed, because the logits are not finite either.
func (p *planner) layOutRow(r *engine.Row, i int32) {
	s := &p.lists
	if r.Deferred {
		s.ids, s.rowOf = append(s.ids, -1), append(s.rowOf, i)
		p.stats.DeferredTokens++
	}
	for _, t := range r.Tokens {
		s.ids, s.rowOf = append(s.ids, int32(t)), append(s.rowOf, i)
	}
	for _, t := range r.Drafts {
		s.ids, s.rowOf = append(s.ids, int32(t)), append(s.rowOf, int32(p.cfg.MaxRows))
	}
	p.stats.GivenTokens += len(r.Tokens) + len(r.Drafts)
	p.stats.Drafted += len(r.Drafts)
	for j := range r.Len() {
		s.slots, s.positions = append(s.slots, int32(r.Slot)), append(s.positions, r.Start+int32(j))
		p.stats.KVTokensRead += int64(r.Start) + int64(j) + 1
	}
}

// tableEntries updates the host's page tables and appends to entries those that the device has
// otherwise, as {slot, index, page}. No entry appears twice, because the device writes them in any
// order.
func (p *planner) tableEntries(b *engine.Batch, entries []int32) []int32 {
	p.pages.Apply(b)
	lacks := func(s engine.Slot, from, to int) {
		have := p.table[int(s)*p.perSlot:]
		for j, page := range p.pages.Of(s)[from:to] {
			if have[from+j] != int32(page) {
				have[from+j] = int32(page)
				entries = append(entries, int32(s), int32(from+j), int32(page))
			}
		}
	}
	if p.redo.tables {
		for s := range engine.Slot(p.cfg.MaxSlots) {
			lacks(s, 0, len(p.pages.Of(s)))
		}
	}
	for i := range b.Binds {
		s := b.Binds[i].Slot
		lacks(s, 0, len(p.pages.Of(s)))
	}
	for i := range b.Rows {
		if r := &b.Rows[i]; len(r.Pages) > 0 {
			all := len(p.pages.Of(r.Slot))
			lacks(r.Slot, max(all-p.appended(b, r.Slot), 0), all)
		}
	}
	for _, w := range b.Swaps {
		lacks(w.Slot, int(w.At), int(w.At)+1)
	}
	return entries
}

// appended returns the number of pages that the batch's rows append to the table of slot s.
func (p *planner) appended(b *engine.Batch, s engine.Slot) (n int) {
	for i := range b.Rows {
		if b.Rows[i].Slot == s {
			n += len(b.Rows[i].Pages)
		}
	}
	return n
}

// logits lists the samples and digests of rows, and their sampling parameters.
func (p *planner) logits(b *engine.Batch) {
	s := &p.lists
	s.want, s.topK = s.want[:0], s.topK[:0]
	s.sampled = slices.Grow(s.sampled[:0], len(b.Rows))[:len(b.Rows)]
	var biases []engine.TokenBias
	draws := p.list(1, 0)
	for k, before := 0, -1; before < len(s.want); k++ {
		before = len(s.want)
		for i := range b.Rows {
			if r := &b.Rows[i]; (r.Sample || r.Digest) && k <= len(r.Drafts) {
				biases = p.sample(r, i, k, biases)
			}
		}
		p.turns = append(p.turns, len(s.want))
	}
	p.draws = part{draws.at, len(s.want)}
	p.sizes.want = len(s.want)
	if p.graph {
		p.sizes.want = p.sizes.tokens
	}
	for range sampleRowSize * (p.sizes.want - len(s.want)) {
		p.data = append(p.data, 0)
	}
	p.want, p.topK = p.list(1, p.sizes.want, s.want...), p.list(1, p.sizes.want, s.topK...)
	p.biases = part{p.list(1, 0).at, len(biases)}
	for _, x := range biases {
		p.data = cudrv.AppendArgs(p.data, uint32(x.Token), math.Float32bits(x.Bias))
	}
}

// sample lists sample k of row r, which has index i, and appends the row's biases to biases.
func (p *planner) sample(r *engine.Row, i, k int, biases []engine.TokenBias) []engine.TokenBias {
	s, sp := &p.lists, &p.params[r.Slot]
	flags, back, draft := uint32(0), int32(0), uint32(0)
	if r.Sample {
		flags |= flagDraw
	}
	if sp.Penalised() {
		flags |= flagPenalised
	}
	w := len(s.want)
	if k > 0 {
		back, draft = int32(w-s.sampled[i]), uint32(r.Drafts[k-1])
		p.samples[s.sampled[i]].then = w
	}
	s.sampled[i], s.want = w, append(s.want, int32(p.first[i]+r.Own()-1+k))
	p.digests = p.digests || r.Digest
	asked := -1
	if r.Sample && (sp.Logprobs || sp.TopLogprobs > 0) {
		asked = int(sp.TopLogprobs)
	}
	p.top, p.samples = max(p.top, asked), append(p.samples, drawnSample{i, asked, -1})
	s.topK = append(s.topK, int32(max(asked, 0)))
	p.data = cudrv.AppendArgs(p.data, sp.Seed, int32(r.Slot), r.SampleIndex+int32(k), sp.Temperature, sp.TopP, sp.MinP, sp.RepetitionPenalty,
		sp.PresencePenalty, sp.FrequencyPenalty, sp.TopK, flags, int32(len(biases)), int32(len(sp.Bias)), int32(r.MaskAt(k))-1, int32(i), back, draft)
	return append(biases, sp.Bias...)
}

// list appends a list of values to data and returns its place. An entry has width values. If there
// are fewer than room entries, zeros reserve the space for room of them.
func (p *plan) list(width, room int, values ...int32) (x part) {
	p.data, x = appendList(p.data, width, room, values)
	return x
}

// before appends a list of values to the buffer more and returns its place. An entry has width
// values.
func (p *plan) before(width int, values ...int32) (x part) {
	p.more, x = appendList(p.more, width, 0, values)
	return x
}

func appendList(to []byte, width, room int, values []int32) ([]byte, part) {
	for len(to)%16 != 0 {
		to = append(to, 0)
	}
	at := len(to)
	for _, v := range values {
		to = binary.LittleEndian.AppendUint32(to, uint32(v))
	}
	for range width*room - len(values) {
		to = append(to, 0, 0, 0, 0)
	}
	return to, part{at, len(values) / width}
}
