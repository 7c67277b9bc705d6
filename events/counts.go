package events

import "reflect"

// PublisherMetrics are counts since the start.
type PublisherMetrics struct {
	Events     uint64 // events appended to the log
	Batches    uint64 // sent, including heartbeats
	Heartbeats uint64
	Bytes      uint64 // bytes of all payloads sent
	Lost       uint64 // batches that the log dropped before they were sent; readers recover them by a snapshot
	SendErrors uint64 // failed sends, counted per transport
	Snapshots  uint64 // made
	HeldBlocks uint64 // blocks stored and not removed; a block in two tiers counts twice
	NextSeq    uint64 // of the next batch to append to the log; HeldBlocks is after the batches before it
}

// Counts are the effects of a rank's messages, for Status and metrics.
type Counts struct {
	Batches, Events             uint64 // applied
	StoredBlocks, RemovedBlocks uint64 // applied
	Stale                       uint64 // batches seen twice or late; dropped
	Gaps                        uint64 // found
	Restarts                    uint64 // of the publisher
	Replays, Snapshots          uint64 // recoveries that succeeded
	Recoveries                  uint64 // begun
	FailedRecoveries            uint64
	Clears                      uint64 // times that a rank was cleared because it was no longer valid
	Malformed                   uint64 // frames and payloads that can't be read
	Impossible                  uint64 // sequence numbers that no publisher sends
	UnknownWorker               uint64 // messages of another topic or rank
	UnknownEvents               uint64 // of unknown kinds; skipped
	UnknownMedium               uint64 // events of unknown tiers; skipped
	OtherGroup                  uint64 // events of other KV cache groups; skipped
	RefusedSalted               uint64 // events refused because of SaltedBlocks
	OrphanBlocks                uint64 // stored below an unknown parent
	Dropped                     uint64 // batches that arrived while the rank was lost or faulty
}

// add adds the counts o of another rank to c.
func (c *Counts) add(o *Counts) {
	sum, more := reflect.ValueOf(c).Elem(), reflect.ValueOf(o).Elem()
	for i := range sum.NumField() {
		sum.Field(i).SetUint(sum.Field(i).Uint() + more.Field(i).Uint())
	}
}
