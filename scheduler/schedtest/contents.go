package schedtest

import (
	"errors"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// contents checks at the end that the pages of the tree hold the KV of its tokens. For each
// leaf it runs the last token again, which writes the same KV, and samples: the sampled token
// depends on the whole path.
type contents struct{ watcher }

// leaf is the path of a leaf of the tree, from token 0.
type leaf struct {
	tokens []kv.Token
	pages  []kv.PageID
}

// check returns an error if a page of the tree holds other KV than that of its tokens. It
// must run after the last plan, and before the tree is emptied.
func (c *contents) check() {
	r := c.r
	if r.cache == nil || r.lost != nil || len(r.flights) > 0 {
		return
	}
	leaves := c.leaves()
	seq := r.lastSeq + 1 // leaves a number for the planted bug
	for lo := 0; lo < len(leaves); lo += r.info.MaxRows {
		seq++
		c.compare(seq, leaves[lo:min(lo+r.info.MaxRows, len(leaves))])
	}
}

func (c *contents) leaves() []leaf {
	var all []leaf
	var tokens []kv.Token
	var pages []kv.PageID
	size := c.r.info.PageTokens
	for v := range c.r.cache.Walk() {
		tokens = append(tokens[:v.Start], v.Tokens...)
		pages = append(pages[:v.Start/size], v.Pages...)
		if v.Leaf {
			all = append(all, leaf{slices.Clone(tokens), slices.Clone(pages)})
		}
	}
	return all
}

func (c *contents) compare(seq uint64, leaves []leaf) {
	r := c.r
	b := engine.Batch{Seq: seq}
	for i, l := range leaves {
		last := len(l.tokens) - 1
		b.Binds = append(b.Binds, engine.SlotBind{Slot: engine.Slot(i), Pages: l.pages})
		b.Rows = append(b.Rows, engine.Row{
			Slot: engine.Slot(i), Start: int32(last), Tokens: l.tokens[last:], Sample: true,
		})
	}
	ticket, err := r.oracle.Submit(&b)
	if err != nil {
		c.failf("reading the tree: %v", err)
	}
	for {
		switch res, err := ticket.Result(); {
		case err == nil:
			c.judge(leaves, res)
			return
		case errors.Is(err, errDevice):
			return // the device was lost in this batch
		case !errors.Is(err, engine.ErrPending) || !r.clock.Step():
			c.failf("reading the tree: %v", err)
		}
	}
}

func (c *contents) judge(leaves []leaf, res *engine.Result) {
	for i, out := range res.Out {
		if out.Err != nil {
			continue // an injected fault
		}
		l := leaves[i]
		if want := c.r.oracle.Expect(l.tokens, engine.SamplingParams{}, 1, nil)[0]; out.Token != want {
			c.failf("the tree has pages %s for tokens %d, but they hold others", formatPages(l.pages), l.tokens)
		}
	}
	c.r.report.Leaves += len(leaves)
}
