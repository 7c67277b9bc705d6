package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteJSON writes the summary as one object.
func (s *IndexSummary) WriteJSON(w io.Writer) error { return writeJSON(w, s) }

// WriteTable writes the summary for people.
func (s *IndexSummary) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	row := func(label, format string, args ...any) {
		fmt.Fprintf(t, "%s\t"+format+"\t\n", append([]any{label}, args...)...)
	}
	row("requests", "%d", s.Requests)
	row("blocks", "%d", s.Blocks)
	row("best overlap", "%d blocks", s.Best)
	row("overlap of the own worker", "%d blocks", s.Own)
	row("stored", "%d blocks in %d events", s.Stored, s.StoreEvents)
	row("find, median", "%.0f ns a request", s.FindP50)
	row("find, 99 %", "%.0f ns a request", s.FindP99)
	row("store, mean", "%.0f ns a request", s.StorePerReq)
	row("hashing", "%.2f ns a token", s.HashPerTok)
	row("hashed, found and stored", "%.0f blocks/s", s.BlocksPerS)
	row("memory", "%.1f bytes for a block of a worker", s.BytesPerBlk)
	return t.Flush()
}
