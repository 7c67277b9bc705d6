package tiering

import "github.com/coppice-llm/coppice/kv"

// Stats count what a tier below the device holds and has done.
type Stats struct {
	HeldBytes             int64 // of its quota
	Extents               int
	Reads, Writes         uint64 // that ended well; a write counts for the tier written to
	ReadBytes, WriteBytes uint64 // of them
	ReadNanos             uint64
	Errors                uint64 // moves that failed, but for those canceled
	Lost                  uint64 // extents that the tier above gave up and that could not be written
}

// count counts a move that failed.
func (s *Stats) count(failed bool) {
	if failed {
		s.Errors++
	}
}

// Stats is what a tier holds and has done; zero where there is no such tier.
func (p *Policy) Stats(of kv.Tier) Stats {
	t := p.tiers[of]
	if t == nil || of == kv.TierDevice {
		return Stats{}
	}
	s := t.stats
	s.HeldBytes, s.Extents = t.index.Bytes(), t.index.Len()
	return s
}
