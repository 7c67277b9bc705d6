package schedtest

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// formatPlan prints a plan: a line for the plan, and one for each bind, copy and row. A row
// shows its request and its tokens as an interval.
func (b *book) formatPlan(p *scheduler.Plan, rows []rowView) string {
	var text strings.Builder
	fmt.Fprintf(&text, "plan %d: %s", p.Batch.Seq, plural(p.Tokens(), "token"))
	for bind, s := range b.bound(&p.Batch) {
		fmt.Fprintf(&text, "\n  slot %d is %s's", bind.Slot, label(s))
	}
	for _, c := range p.Batch.Copies {
		fmt.Fprintf(&text, "\n  copy %d tokens of page %d to page %d", c.Tokens, c.Src, c.Dst)
	}
	for _, id := range p.Batch.Drops {
		fmt.Fprintf(&text, "\n  drop mask %d", id)
	}
	for _, m := range p.Batch.Masks {
		n := 0
		for _, w := range m.Bits {
			n += bits.OnesCount64(w)
		}
		fmt.Fprintf(&text, "\n  mask %d allows %s", m.ID, plural(n, "token"))
	}
	for _, v := range rows {
		fmt.Fprintf(&text, "\n  %s[%d,%d) pages=%s", label(v.of), v.row.Start, int(v.row.Start)+v.row.Len(), formatPages(v.pages))
		if v.row.Deferred {
			text.WriteString(" deferred")
		}
		if n := len(v.row.Drafts); n > 0 {
			fmt.Fprintf(&text, " drafts=%d", v.row.Drafts)
		}
		if v.row.Sample {
			fmt.Fprintf(&text, " sample=%d", v.row.SampleIndex)
		}
		if v.row.Mask != 0 {
			fmt.Fprintf(&text, " mask=%d", v.row.Mask)
		}
	}
	return text.String()
}

// label returns a sample's request ID, and its index if there are several samples; "?" for nil.
func label(s *sample) string {
	switch {
	case s == nil:
		return "?"
	case len(s.of.samples) == 1:
		return fmt.Sprint(s.of.req.ID)
	}
	return fmt.Sprintf("%d.%d", s.of.req.ID, s.index)
}

// formatPages prints page ids, consecutive ones as lo-hi.
func formatPages(pages []kv.PageID) string {
	var b strings.Builder
	for i := 0; i < len(pages); {
		j := i
		for j+1 < len(pages) && pages[j+1] == pages[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		if j > i {
			fmt.Fprintf(&b, "%d-%d", pages[i], pages[j])
		} else {
			fmt.Fprint(&b, pages[i])
		}
		i = j + 1
	}
	return b.String()
}

// plural prints a count with its noun.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
