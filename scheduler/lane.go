package scheduler

// lane is a part of the queue: waiting sequences by rank, lowest first, and by age.
type lane struct {
	key    laneKey
	at     int // among queue.lanes
	ranked seqHeap
	aged   seqHeap // unused unless needsOldest
}

// laneKey names a lane. Tenants have lanes of their own where they are
// told apart, response ratios a lane per class of un-cached tokens, and long
// prompts, so that they can be passed by while enough are being computed.
type laneKey struct {
	tenant *tenant
	ratio  int
	long   bool
}

func (l *lane) head() *sequence { return l.ranked.first() }
