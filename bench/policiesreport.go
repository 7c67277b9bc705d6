package bench

import (
	"fmt"
	"strings"
)

// Rows returns a header and a row for each trace and capacity. The name of a trace is
// in its first row only.
func (table *PolicyTable) Rows() (_ [][]string, legend string) {
	rows := [][]string{append([]string{"trace", "room", "tokens", "best"}, table.Policies...)}
	for _, t := range table.Traces {
		name := t.Name
		for _, c := range t.Capacities {
			row := []string{
				name, fmt.Sprintf("%.3g %%", 100*c.Share), fmt.Sprint(c.CapacityTokens),
				fmt.Sprintf("%d (%.2f %%)", c.ClairvoyantTokens, 100*c.ClairvoyantRate),
			}
			for _, r := range c.Policies {
				row = append(row, fmt.Sprintf("%d (%.2f %%)", r.SavedTokens, 100*r.OfBest))
			}
			rows, name = append(rows, row), ""
		}
	}
	return rows, table.legend()
}

// legend explains the columns and gives the sizes of the traces.
func (table *PolicyTable) legend() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Pages of %d tokens. room: share of the working set that the cache may hold, and the same in tokens,\n", table.PageTokens)
	b.WriteString("at least the longest request. best: tokens that clairvoyant eviction saves, and their share of all\n")
	b.WriteString("tokens (the hit rate). Policies: tokens saved, and their share of the best.\n")
	for _, t := range table.Traces {
		fmt.Fprintf(&b, "\n%v; with room for all %d are saved.", &t.TraceSizes, t.IdealTokens)
	}
	return b.String()
}
