package kv

import (
	"cmp"
	"fmt"
)

// WorkerID names a worker of a fleet: in events, indexes, routers and on the wire.
type WorkerID uint64

// Rank is what holds blocks, numbers events and is sent requests: one data-parallel rank
// of a worker. DP is 0 for workers without ranks.
type Rank struct {
	Worker WorkerID
	DP     uint32
}

func (r Rank) String() string { return fmt.Sprintf("%d/%d", uint64(r.Worker), r.DP) }

// Compare orders by worker, then by rank.
func (r Rank) Compare(s Rank) int {
	return cmp.Or(cmp.Compare(r.Worker, s.Worker), cmp.Compare(r.DP, s.DP))
}
