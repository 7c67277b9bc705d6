package schedtest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// contents checks at the end that the pages of the tree hold the KV of its tokens. For each
// leaf it runs the last token again, which writes the same KV, and samples: the sampled token
// depends on the whole path.
type contents struct {
	r *rig
}

// leaf is the path of a leaf of the tree, from token 0.
type leaf struct {
	tokens []kv.Token
	pages  []kv.PageID
}

// check returns an error if a page of the tree holds other KV than that of its tokens. It
// must run after the last plan, and before the tree is emptied.
func (c *contents) check() error {
	r := c.r
	if r.cache == nil || r.lost != nil || len(r.flights) > 0 {
		return nil
	}
	leaves := c.leaves()
	seq := r.lastSeq + 1 // leaves a number for the planted bug
	for lo := 0; lo < len(leaves); lo += r.info.MaxRows {
		seq++
		if err := c.compare(seq, leaves[lo:min(lo+r.info.MaxRows, len(leaves))]); err != nil {
			return err
		}
	}
	return nil
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

func (c *contents) compare(seq uint64, leaves []leaf) error {
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
		return fmt.Errorf("reading the tree: %w", err)
	}
	for {
		switch res, err := ticket.Result(); {
		case err == nil:
			return c.judge(leaves, res)
		case errors.Is(err, errDevice):
			return nil // the device was lost in this batch
		case !errors.Is(err, engine.ErrPending) || !r.clock.Step():
			return fmt.Errorf("reading the tree: %w", err)
		}
	}
}

func (c *contents) judge(leaves []leaf, res *engine.Result) error {
	for i, out := range res.Out {
		if out.Err != nil {
			continue // an injected fault
		}
		l := leaves[i]
		if want := c.r.oracle.Expect(l.tokens, engine.SamplingParams{}, 1, nil)[0]; out.Token != want {
			return fmt.Errorf("the tree has pages %s for tokens %s, but they hold others", formatPages(l.pages), formatTokens(l.tokens))
		}
	}
	c.r.report.Leaves += len(leaves)
	return nil
}
