package tiering

import "github.com/coppice-llm/coppice/kv"

// Stats holds the contents and counters of a tier below the device.
type Stats struct {
	HeldBytes             int64 // bytes of its quota in use
	Extents               int
	Reads, Writes         uint64 // successful reads from the tier and writes to it
	ReadBytes, WriteBytes uint64 // KV bytes of these
	ReadNanos             uint64 // sum of the durations of Reads
	Errors                uint64 // failed moves, without canceled ones
	Lost                  uint64 // extents that the tier above dropped and this tier could not take
}

// count counts a move as an error if it failed.
func (s *Stats) count(failed bool) {
	if failed {
		s.Errors++
	}
}

// Stats returns the statistics of a tier; zero if the tier does not exist.
func (b *Book) Stats(of kv.Tier) Stats {
	t := b.tiers[of]
	if t == nil || of == kv.TierDevice {
		return Stats{}
	}
	s := t.stats
	s.HeldBytes, s.Extents = t.index.Bytes(), t.index.Len()
	return s
}
