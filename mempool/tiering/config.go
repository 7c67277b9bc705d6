package tiering

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// Mode selects when an extent on the device is written to the tier below.
type Mode uint8

// The modes, named as in SGLang's HiCache (write_back, write_through_selective, write_through).
const (
	WriteBack Mode = iota // when the device evicts it, or before that while there are moves to spare
	Selective             // on its second use
	Through               // as soon as it is computed
)

var modeNames = [...]string{"back", "selective", "through"}

func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// UnmarshalText reads the form of String.
func (m *Mode) UnmarshalText(b []byte) error {
	for i, name := range modeNames {
		if string(b) == name {
			*m = Mode(i)
			return nil
		}
	}
	return fmt.Errorf("tiering: unknown mode %q, want back, selective or through", b)
}

// Defaults. A high watermark of 0.90 is that of Dynamo's host tier. The gap down to Low lets one
// call free room for many writes: 5 % of 64 GiB are 3.2 GiB. Bandwidth is a guess that is used
// until reads have been measured.
const (
	DefaultHigh      = 0.90
	DefaultLow       = 0.85
	DefaultMaxMoves  = 16
	DefaultMaxQueue  = 4096
	DefaultDeadline  = 10 * time.Second
	DefaultLateness  = 4.0
	DefaultMinWait   = 50 * time.Millisecond // a shorter deadline would measure the OS scheduler, not a disk
	DefaultUses      = 2
	DefaultBandwidth = 1e9
)

// TierConfig configures one tier below the device. A tier with zero Bytes does not exist.
type TierConfig struct {
	Bytes          int64   // quota
	SlotBytes      int     // bytes that any extent takes of the quota
	NamespaceBytes int64   // most bytes of one namespace; 0: the whole quota
	High, Low      float64 // watermarks, as fractions of Bytes: above High, extents are dropped down to Low
	MaxMoves       int     // moves in flight to the tier and from it
	Bandwidth      float64 // of reads in bytes per second, until it is measured
	FullOnly       bool    // takes no tails: in a shared directory, lookups for them would mostly miss
	Kept           bool    // another process enforces the quota, so the policy drops nothing for room
}

// Config configures a policy. Layout and at least one tier are required.
type Config struct {
	Layout       mempool.Layout
	Mode         Mode
	Tiers        [kv.Tiers]TierConfig // by kv.Tier; the device's is not used
	Uses         int                  // uses of an extent before disk and lower tiers admit it
	MaxQueue     int                  // queued writes; further ones are refused
	Deadline     time.Duration        // for a write; upper bound of a read's deadline
	MinWait      time.Duration        // lower bound of a read's deadline
	Lateness     float64              // a read's deadline is this many times its expected time
	TokenSeconds float64              // seconds to compute a token of a prompt; 0: measure it
	TokenGuess   float64              // used until then; 0: fetching always pays
}

// WithDefaults returns c with defaults for fields that are zero.
func (c Config) WithDefaults() Config {
	for i := range c.Tiers {
		t := &c.Tiers[i]
		if t.Bytes == 0 {
			continue
		}
		or(&t.High, DefaultHigh)
		or(&t.Low, min(DefaultLow, t.High))
		or(&t.MaxMoves, DefaultMaxMoves)
		or(&t.Bandwidth, DefaultBandwidth)
		or(&t.NamespaceBytes, t.Bytes)
	}
	or(&c.Uses, DefaultUses)
	or(&c.MaxQueue, DefaultMaxQueue)
	or(&c.Deadline, DefaultDeadline)
	or(&c.Lateness, DefaultLateness)
	or(&c.MinWait, min(DefaultMinWait, c.Deadline))
	return c
}

func or[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

// Validate returns an error that names all invalid fields, or nil.
func (c *Config) Validate() error {
	errs := []error{c.Layout.Validate()}
	for i := range c.Tiers {
		t, name := &c.Tiers[i], kv.Tier(i)
		switch {
		case t.Bytes == 0:
		case i == int(kv.TierDevice):
			errs = append(errs, errors.New("tiering: the device has no TierConfig: its pages are the pool's"))
		case t.SlotBytes < 1 || t.Bytes < int64(t.SlotBytes):
			errs = append(errs, fmt.Errorf("tiering: %s has Bytes %d and SlotBytes %d, want one slot at least", name, t.Bytes, t.SlotBytes))
		case !(0 < t.Low && t.Low <= t.High && t.High <= 1):
			errs = append(errs, fmt.Errorf("tiering: %s has Low %v and High %v, want 0 < Low <= High <= 1", name, t.Low, t.High))
		case t.MaxMoves < 1 || t.Bandwidth <= 0 || t.NamespaceBytes < 0:
			errs = append(errs, fmt.Errorf("tiering: %s has MaxMoves %d, Bandwidth %v, NamespaceBytes %d", name, t.MaxMoves, t.Bandwidth, t.NamespaceBytes))
		}
	}
	if c.Uses < 1 || c.MaxQueue < 1 || c.Deadline <= 0 || c.Lateness < 1 || c.MinWait <= 0 || c.MinWait > c.Deadline || c.TokenSeconds < 0 || c.TokenGuess < 0 || c.Mode > Through {
		errs = append(errs, fmt.Errorf("tiering: Uses %d, MaxQueue %d, Deadline %v, MinWait %v, Lateness %v, TokenSeconds %v, Mode %v", c.Uses, c.MaxQueue, c.Deadline, c.MinWait, c.Lateness, c.TokenSeconds, c.Mode))
	}
	return errors.Join(errs...)
}
