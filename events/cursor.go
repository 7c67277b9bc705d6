package events

// maxJump is how far ahead a sequence number may be: beyond it lies no gap, but
// nonsense. At a batch per millisecond it is seven weeks.
const maxJump = 1 << 32

// Verdict is what a [Cursor] makes of a sequence number.
type Verdict uint8

// The verdicts.
const (
	Initial    Verdict = iota // the first that is seen: anything goes
	Contiguous                // the one that was due
	Gap                       // some before it are missing
	Stale                     // seen already, or of an earlier epoch
	Restarted                 // of a later epoch: all before is void
	Impossible                // no publisher would send it
)

var verdictNames = [...]string{"initial", "contiguous", "gap", "stale", "restarted", "impossible"}

func (v Verdict) String() string { return verdictNames[v] }

// Cursor is how far the reader of one rank has come. The zero value is initial.
type Cursor struct {
	epoch uint64 // 0 = not known
	next  uint64
	live  bool
}

// Observe judges a message by its numbers and changes nothing. An epoch of 0
// fits every epoch.
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

// Set says that all before next is known; epoch 0 leaves the epoch unknown.
func (c *Cursor) Set(epoch, next uint64) { *c = Cursor{epoch: epoch, next: next, live: true} }

// Took says that seq was applied, of the given epoch.
func (c *Cursor) Took(epoch, seq uint64) {
	if epoch == 0 && c.live {
		epoch = c.epoch
	}
	c.Set(epoch, seq+1)
}

// Reset makes the cursor initial.
func (c *Cursor) Reset() { *c = Cursor{} }

// Next is the sequence number that is due; false while the cursor is initial.
func (c *Cursor) Next() (uint64, bool) { return c.next, c.live }

// Epoch is the publisher's, 0 if it is not known.
func (c *Cursor) Epoch() uint64 { return c.epoch }
