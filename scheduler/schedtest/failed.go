package schedtest

import (
	"errors"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool/tiering"
	"github.com/coppice-llm/coppice/scheduler"
)

// failedKV checks that no request reads the KV of a request that failed before the reader
// was admitted. A reader may do so if a third request has successfully sampled from that KV
// before. Contents follow their pages through the lower tiers: each record has those of the
// write that stored it. The KV of another process is no request's of this one, and sound: a
// process writes only what one of its requests has sampled from.
type failedKV struct {
	watcher
	pages   []*content                    // current content by page
	leaving map[tiering.MoveID][]*content // by Write from the device that is about to begin, by page of its extent
	written map[*sample][]*part           // parts written by open samples
	bound   map[*sample]int               // number of plans made at a sample's latest bind
	proofs  map[uint64][]proof            // by running plan
	salts   *salts
}

// content is the content of a page, until the page is reused. It is nil for KV of no request.
type content struct {
	id    kv.PageID
	owner *sample // the last that wrote to the page as its own; nil: it came from a lower tier
	parts []*part
}

// part is the KV that one sample wrote to a page, up to the beginning of the next part.
type part struct {
	by       *sample
	from     int // index in the page of its first token
	failed   bool
	failedAt int  // number of plans made when its sample failed
	proven   bool // another sample has sampled from it
	provenAt int  // number of plans made by then
}

// proof is a row that samples or ends an embedding, with the contents that it reads.
type proof struct {
	row   int
	by    *sample
	reads []*content
}

func newFailedKV(r *rig) *failedKV {
	return &failedKV{
		watcher: watcher{r, "failed"}, pages: make([]*content, r.info.NumPages), leaving: map[tiering.MoveID][]*content{},
		salts: &salts{watcher{r, "salts"}}, written: map[*sample][]*part{}, bound: map[*sample]int{}, proofs: map[uint64][]proof{},
	}
}

// bad returns a part that a reader must not use, or nil. The reader uses as many tokens of
// the page as slots says, and its slot was bound in plan number boundAt. It must not use
// the KV of a sample that failed before that plan, unless the KV was proven before that
// plan.
func (c *content) bad(slots, boundAt int) *part {
	if c == nil {
		return nil
	}
	i := slices.IndexFunc(c.parts, func(p *part) bool {
		return p.from < slots && p.failed && p.failedAt < boundAt && !(p.proven && p.provenAt < boundAt)
	})
	if i < 0 {
		return nil
	}
	return c.parts[i]
}

func (c *failedKV) planned(p *scheduler.Plan, rows []rowView) {
	for _, s := range c.r.book.bound(&p.Batch) {
		if s != nil {
			c.bound[s] = c.r.plans
		}
	}
	for i := range p.Moves {
		c.takes(&p.Moves[i])
	}
	for _, copied := range p.Batch.Copies {
		from := c.pages[copied.Src]
		if b := from.bad(int(copied.Tokens), c.r.plans); b != nil {
			c.failf("plan %d copies page %d, which only the failed %s computed", p.Batch.Seq, copied.Src, label(b.by))
		}
		to := &content{id: copied.Dst}
		var at int
		to.owner, at = c.salts.holder(p, copied.Dst)
		c.salts.reads(to.owner, from, at, int(copied.Tokens))
		if from != nil {
			to.parts = slices.DeleteFunc(slices.Clone(from.parts), func(p *part) bool { return p.from >= int(copied.Tokens) })
		}
		c.pages[copied.Dst] = to
	}
	for i := range rows {
		c.row(p, i, &rows[i])
	}
}

// takes notes the contents of the pages that m, a Write from the device, reads before the
// plan's batch can overwrite them.
func (c *failedKV) takes(m *tiering.Move) {
	if m.Kind != tiering.Write {
		return
	}
	for _, id := range m.Pages {
		c.leaving[m.ID] = append(c.leaving[m.ID], c.pages[id])
	}
}

// taken returns and forgets the contents that the Write id took from the device, by page of
// its extent.
func (c *failedKV) taken(id tiering.MoveID) []*content {
	all := c.leaving[id]
	delete(c.leaving, id)
	return all
}

// filled notes that a Read copies a record with the given contents to pages. All plans that
// were made before read what the pages had until then.
func (c *failedKV) filled(pages []kv.PageID, from []*content) {
	for i, id := range pages {
		switch {
		case id == kv.NoPage:
		case i < len(from) && from[i] != nil:
			c.pages[id] = &content{id: id, parts: from[i].parts}
		default:
			c.pages[id] = &content{id: id, parts: []*part{{proven: true}}}
		}
	}
}

// row checks the pages that row i of p reads; v is the row's view. It records the parts
// that the row writes, and if the row samples, the contents that it reads.
func (c *failedKV) row(p *scheduler.Plan, i int, v *rowView) {
	s, size := v.of, c.r.info.PageTokens
	if s == nil {
		return
	}
	start, row := int(v.row.Start), v.row
	if v.fresh {
		for i, id := range v.pages[:min(start/size, len(v.pages))] {
			c.salts.reads(s, c.pages[id], i*size, size)
			if b := c.pages[id].bad(size, c.bound[s]); b != nil {
				c.failf("%s begins at token %d on page %d, which only the failed %s computed", label(s), start, id, label(b.by))
			}
		}
	}
	for at := start / size; at < len(v.pages); at++ {
		id := v.pages[at]
		if c.pages[id] == nil || start <= at*size {
			c.pages[id] = &content{id: id}
		}
		if c.pages[id].parts == nil || c.pages[id].parts[len(c.pages[id].parts)-1].by != s {
			mine := &part{by: s, from: max(start-at*size, 0)}
			c.pages[id].parts = append(c.pages[id].parts, mine)
			c.written[s] = append(c.written[s], mine)
		}
		c.pages[id].owner = s
	}
	embeds := row.Hidden != engine.HiddenNone && start+len(row.Tokens) == len(s.of.req.Prompt)
	if row.Sample || embeds {
		reads := make([]*content, 0, len(v.pages))
		for _, id := range v.pages {
			reads = append(reads, c.pages[id])
		}
		c.proofs[p.Batch.Seq] = append(c.proofs[p.Batch.Seq], proof{i, s, reads})
	}
}

// resulted: a successful sample, or the embedding of a prompt, proves the KV that its row read, except its own.
func (c *failedKV) resulted(f *flight, res *engine.Result, err error) {
	proofs := c.proofs[f.seq]
	delete(c.proofs, f.seq)
	if err != nil {
		return
	}
	for _, p := range proofs {
		at := slices.IndexFunc(res.Out, func(o engine.RowOut) bool { return o.Row == p.row })
		if at < 0 || res.Out[at].Err != nil {
			continue
		}
		for _, content := range p.reads {
			for _, part := range content.parts {
				if part.by != p.by && !part.proven {
					part.proven, part.provenAt = true, c.r.plans
				}
			}
		}
	}
}

func (c *failedKV) told(s *sample, o *scheduler.Output) {
	if s == nil || o.Ending.Reason == scheduler.NotEnded {
		return
	}
	if errors.Is(o.Ending.Err, errRow) {
		for _, p := range c.written[s] {
			p.failed, p.failedAt = true, c.r.plans
		}
	}
	delete(c.written, s)
	delete(c.bound, s)
}
