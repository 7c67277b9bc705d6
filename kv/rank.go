package kv

import (
	"cmp"
	"fmt"
)

// WorkerID names a worker of a fleet, in events, indexes, routers and on the wire.
type WorkerID uint64

// Rank is one data-parallel rank of a worker: it holds blocks, numbers its events and
// receives requests. DP is 0 for workers without ranks.
type Rank struct {
	Worker WorkerID
	DP     uint32
}

func (r Rank) String() string { return fmt.Sprintf("%d/%d", uint64(r.Worker), r.DP) }

// Compare orders ranks by worker, then by DP.
func (r Rank) Compare(s Rank) int {
	return cmp.Or(cmp.Compare(r.Worker, s.Worker), cmp.Compare(r.DP, s.DP))
}
