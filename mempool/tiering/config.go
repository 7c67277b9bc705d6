package tiering

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// Mode says when an extent on the device is written to the tier below.
type Mode uint8

// The modes, as SGLang's HiCache names them.
const (
	WriteBack Mode = iota // when the device needs its room
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

// Defaults. Watermarks of 0.90 are those of Dynamo's host tier; the gap to Low lets one
// look free room for many writes. Bandwidths are guesses until moves are measured.
const (
	DefaultHigh      = 0.90
	DefaultLow       = 0.85
	DefaultMaxMoves  = 16
	DefaultMaxQueue  = 4096
	DefaultDeadline  = 10 * time.Second
	DefaultLateness  = 4.0
	DefaultMinWait   = 50 * time.Millisecond // below it a deadline measures the system's scheduler, not a disk
	DefaultUses      = 2
	DefaultBandwidth = 1e9
)

// TierConfig is one tier below the device. A tier without Bytes does not exist.
type TierConfig struct {
	Bytes          int64   // quota
	SlotBytes      int     // what an extent takes of it
	NamespaceBytes int64   // most that one namespace may have; 0: all
	High, Low      float64 // of Bytes: beyond High extents leave, down to Low
	MaxMoves       int     // in flight to it or from it
	Bandwidth      float64 // bytes a second of reads, until they are measured
	FullOnly       bool    // no tails: in a shared directory they would be looked for in vain
	Kept           bool    // somebody else removes what is beyond the quota
}

// Config is what a policy goes by. Layout, and one tier, are needed.
type Config struct {
	Layout       mempool.Layout
	Mode         Mode
	Tiers        [kv.Tiers]TierConfig // by kv.Tier; the device's is not used
	Uses         int                  // of an extent, from which on disk and below admit it
	MaxQueue     int                  // writes that wait; more are not written
	Deadline     time.Duration        // of a write, and the most of a read
	MinWait      time.Duration        // the least that a read may take
	Lateness     float64              // a read may take so often the time that it should
	TokenSeconds float64              // computing a token of a prompt; 0: it is measured
	TokenGuess   float64              // until then; 0: fetching always pays
}

// WithDefaults fills in what is zero.
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

// Validate reports all that is wrong with c.
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
