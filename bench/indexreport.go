package bench

// Rows returns the figures, one a row.
func (s *IndexSummary) Rows() (rows [][]string, legend string) {
	var t table
	t.row("requests", "%d", s.Requests)
	t.row("blocks", "%d", s.Blocks)
	t.row("best overlap", "%d blocks", s.Best)
	t.row("overlap of the own worker", "%d blocks", s.Own)
	t.row("stored", "%d blocks in %d events", s.Stored, s.StoreEvents)
	t.row("find, median", "%.0f ns a request", s.FindP50)
	t.row("find, 99 %", "%.0f ns a request", s.FindP99)
	t.row("store, mean", "%.0f ns a request", s.StorePerReq)
	t.row("hashing", "%.2f ns a token", s.HashPerTok)
	t.row("hashed, found and stored", "%.0f blocks/s", s.BlocksPerS)
	t.row("memory", "%.1f bytes for a block of a worker", s.BytesPerBlk)
	return t, ""
}
