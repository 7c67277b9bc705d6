package tiering

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/internal/enum"
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

var modeNames = enum.New[Mode]("tiering", "mode", "back", "selective", "through")

func (m Mode) String() string { return modeNames.Name(m) }

// UnmarshalText reads the form of String.
func (m *Mode) UnmarshalText(b []byte) error { return modeNames.Read(m, b) }

// TierConfig configures one tier below the device. A tier with zero Bytes does not exist.
//
// The default of High, 0.90, is that of Dynamo's host tier. Because Low is below High, one call
// frees room for many writes: 5 % of 64 GiB are 3.2 GiB. The default of Bandwidth is a guess.
type TierConfig struct {
	Bytes          int64   // quota
	SlotBytes      int     `min:"1"`                          // bytes that any extent takes of the quota
	NamespaceBytes int64   `min:"0"`                          // most bytes of one namespace; default: the whole quota
	High           float64 `default:"0.90" above:"0" max:"1"` // watermark, as a fraction of Bytes: above it, extents are dropped
	Low            float64 `above:"0" max:"1"`                // fraction of Bytes down to which they are dropped; default 0.85, at most High
	MaxMoves       int     `default:"16" min:"1"`             // moves in flight to the tier and from it
	Bandwidth      float64 `default:"1e9" above:"0"`          // of reads in bytes per second, until it is measured
	FullOnly       bool    // takes no tails: in a shared directory, lookups for them would mostly miss
	Kept           bool    // another process enforces the quota, so the book drops nothing for room
}

// Config configures a book. Layout and at least one tier are required.
type Config struct {
	Layout       mempool.Layout
	Mode         Mode
	Tiers        [kv.Tiers]TierConfig // by kv.Tier; the device's is not used
	Uses         int                  `default:"2" min:"1"`      // uses of an extent before disk and lower tiers admit it
	MaxQueue     int                  `default:"4096" min:"1"`   // queued writes; further ones are refused
	Deadline     time.Duration        `default:"10s" above:"0s"` // for a write; upper bound of a read's deadline
	MinWait      time.Duration        `above:"0s"`               // lower bound of a read's deadline; default defaultMinWait, at most Deadline
	Lateness     float64              `default:"4" min:"1"`      // a read's deadline is this many times its expected time
	TokenSeconds float64              `min:"0"`                  // seconds to compute a token of a prompt; 0: measure it
	TokenGuess   float64              `min:"0"`                  // the same, used until it is measured; 0: fetch always
	NoChanges    bool                 // the owner never calls Changes, so none are kept
}

const (
	DefaultMaxMoves = 16 // of TierConfig.MaxMoves

	defaultLow     = 0.85
	defaultMinWait = 50 * time.Millisecond // a shorter deadline would measure the OS scheduler, not a disk
)

// WithDefaults returns c with defaults in the fields that are zero, also in those of its tiers.
func (c Config) WithDefaults() Config {
	c = bounds.Fill(c)
	c.MinWait = cmp.Or(c.MinWait, min(defaultMinWait, c.Deadline))
	for i := range c.Tiers {
		if t := &c.Tiers[i]; t.Bytes != 0 {
			*t = bounds.Fill(*t)
			t.Low = cmp.Or(t.Low, min(defaultLow, t.High))
			t.NamespaceBytes = cmp.Or(t.NamespaceBytes, t.Bytes)
		}
	}
	return c
}

// Validate returns an error that names all invalid fields, or nil.
func (c *Config) Validate() error {
	errs := []error{c.Layout.Validate(), bounds.Check("tiering", c)}
	for i := range c.Tiers {
		t, name := &c.Tiers[i], kv.Tier(i)
		if t.Bytes == 0 {
			continue
		}
		errs = append(errs, bounds.Check(fmt.Sprintf("tiering: %s", name), t))
		switch {
		case i == int(kv.TierDevice):
			errs = append(errs, errors.New("tiering: the device has no TierConfig: its pages are the pool's"))
		case t.Bytes < int64(t.SlotBytes):
			errs = append(errs, fmt.Errorf("tiering: %s has Bytes %d and SlotBytes %d, want one slot at least", name, t.Bytes, t.SlotBytes))
		case t.Low > t.High:
			errs = append(errs, fmt.Errorf("tiering: %s has Low %v and High %v, want Low <= High", name, t.Low, t.High))
		}
	}
	if c.MinWait > c.Deadline {
		errs = append(errs, fmt.Errorf("tiering: MinWait is %v, want at most Deadline, %v", c.MinWait, c.Deadline))
	}
	if !modeNames.Has(c.Mode) {
		errs = append(errs, fmt.Errorf("tiering: Mode is %v, want %s", c.Mode, modeNames.Names()))
	}
	return errors.Join(errs...)
}
