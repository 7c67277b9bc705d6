package events

// maxJump is the largest gap between sequence numbers that is taken for a loss. A larger one is
// a fault of the sender. At one batch per millisecond it is seven weeks.
const maxJump = 1 << 32

// Verdict is a [Cursor]'s judgement of a sequence number.
type Verdict uint8

// The verdicts.
const (
	Initial    Verdict = iota // no message was applied before, so any number is right
	Contiguous                // the number is the next one
	Gap                       // numbers before this one are missing
	Stale                     // applied already, or of an earlier epoch
	Restarted                 // of a later epoch: all earlier state is invalid
	Impossible                // no publisher would send it
)

// Cursor is the position of one rank's reader: the epoch, and the number of the next batch. The
// zero value is initial. Example: after batch 7 of epoch 3 it holds epoch 3, next 8; batch 8 is
// Contiguous, 10 a Gap, 7 Stale, and any batch of epoch 4 Restarted.
type Cursor struct {
	epoch uint64 // 0: unknown
	next  uint64
	live  bool
}

// Observe judges a message by its epoch and number, and changes nothing. Epoch 0, of a transport
// without epochs, matches every epoch.
func (c *Cursor) Observe(epoch, seq uint64) Verdict {
	switch {
	case seq >= 1<<63:
		return Impossible
	case !c.live:
		return Initial
	case epoch != 0 && c.epoch != 0 && epoch > c.epoch:
		return Restarted
	case epoch != 0 && epoch < c.epoch:
		return Stale
	case seq == c.next:
		return Contiguous
	case seq < c.next:
		return Stale
	case seq-c.next > maxJump:
		return Impossible
	default:
		return Gap
	}
}

// Set notes that all batches of epoch before number next are known. Epoch 0 leaves the epoch
// unknown.
func (c *Cursor) Set(epoch, next uint64) { *c = Cursor{epoch: epoch, next: next, live: true} }

// Took notes that batch seq of epoch was applied. Epoch 0 keeps the known epoch.
func (c *Cursor) Took(epoch, seq uint64) {
	if epoch == 0 && c.live {
		epoch = c.epoch
	}
	c.Set(epoch, seq+1)
}

// Reset makes the cursor initial.
func (c *Cursor) Reset() { *c = Cursor{} }

// Next returns the number of the next batch. The second result is false while the cursor is
// initial.
func (c *Cursor) Next() (uint64, bool) { return c.next, c.live }

// Epoch returns the publisher's epoch, or 0 if it is unknown.
func (c *Cursor) Epoch() uint64 { return c.epoch }
