package mempool

import (
	"fmt"
	"strings"
	"time"
)

// StoreMetrics counts the contents of a store, and its operations since it was opened.
type StoreMetrics struct {
	Extents       int
	Bytes         int64 // in use, headers included
	CapacityBytes int64
	OpenOps       int // operations without a Done yet

	Puts, Gets, Drops, Probes, Flushes OpMetrics
	Damaged                            int64 // records with wrong bytes
}

// OpMetrics counts the ended operations of one kind.
type OpMetrics struct {
	OK, Missed, Late, Canceled, Failed int64         // by result; Late ended by their deadline
	Bytes                              int64         // of the pages that successful operations moved
	Time                               time.Duration // sum of the durations of successful operations
}

// Utilization returns the used part of the capacity, in [0, 1].
func (m *StoreMetrics) Utilization() float64 { return ratio(m.Bytes, m.CapacityBytes) }

// ratio returns part/whole, and 0 for an empty whole.
func ratio(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// Of returns the counts of one kind of operation.
func (m *StoreMetrics) Of(k OpKind) *OpMetrics {
	return [...]*OpMetrics{&m.Puts, &m.Gets, &m.Drops, &m.Probes, &m.Flushes}[k]
}

func (m StoreMetrics) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "extents %d  bytes %d of %d (%.1f%%)  open %d  damaged %d\n", m.Extents, m.Bytes, m.CapacityBytes, 100*m.Utilization(), m.OpenOps, m.Damaged)
	for k := Put; k <= Flush; k++ {
		o := m.Of(k)
		fmt.Fprintf(&b, "%-5s  ok %d  missed %d  late %d  canceled %d  failed %d  bytes %d  time %v\n", k, o.OK, o.Missed, o.Late, o.Canceled, o.Failed, o.Bytes, o.Time)
	}
	return b.String()
}
