package scheduler

import (
	"fmt"
	"strconv"

	"github.com/coppice-llm/coppice/scheduler/internal/drafts"
)

// Speculate says how many guesses at its next tokens (drafts) a sequence may verify in a step. A
// positive value is a number: a sequence verifies all guesses that it has, but no more than so
// many, whether they are worth their time or not. Tokens are the same with every value.
type Speculate int16

// The other values.
const (
	// SpeculateDefault is SpeculateAuto in a Config, and in a Request what the Config says.
	SpeculateDefault Speculate = 0
	// SpeculateOff verifies no guesses. In a Config it holds for all requests.
	SpeculateOff Speculate = -1
	// SpeculateAuto verifies as many guesses as make the step give more tokens a second, by the
	// backend's Cost, the measured times of steps, and the part of earlier guesses that was right.
	SpeculateAuto Speculate = -2
)

func (s Speculate) String() string {
	switch s {
	case SpeculateDefault:
		return "default"
	case SpeculateOff:
		return "off"
	case SpeculateAuto:
		return "auto"
	}
	return strconv.Itoa(int(s))
}

// MarshalText returns String.
func (s Speculate) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads "auto", "off", "default" or a number from 1 to 1024.
func (s *Speculate) UnmarshalText(b []byte) error {
	for _, v := range []Speculate{SpeculateDefault, SpeculateOff, SpeculateAuto} {
		if string(b) == v.String() {
			*s = v
			return nil
		}
	}
	n, err := strconv.Atoi(string(b))
	if err != nil || n < 1 || n > mostSpeculate {
		return fmt.Errorf("scheduler: Speculate is %q, want auto, off or a number from 1 to %d", b, mostSpeculate)
	}
	*s = Speculate(n)
	return nil
}

// mostSpeculate bounds the numbers of Speculate. Backends verify fewer.
const mostSpeculate = 1024

// valid reports whether s is a value of Speculate.
func (s Speculate) valid() bool { return s >= SpeculateAuto && s <= mostSpeculate }

// DraftSource is the origin of drafts.
type DraftSource = drafts.Source

// The sources of drafts.
const (
	DraftOwn        = drafts.Own        // the prompt and the output so far
	DraftPrediction = drafts.Prediction // Request.Prediction
	DraftGrammar    = drafts.Grammar    // Request.Format allows one way to go on
	DraftTree       = drafts.Tree       // what followed in other requests of the namespace
	DraftSources    = drafts.Sources    // their number
)

// DraftCounts counts drafts by source.
type DraftCounts struct {
	Drafted  [DraftSources]uint64 // guesses that steps have verified
	Accepted [DraftSources]uint64 // the guesses that became tokens of an output
	Rows     uint64               // rows of steps that verified guesses
}

// Sum returns the numbers over all sources.
func (c *DraftCounts) Sum() (drafted, accepted uint64) {
	for i := range c.Drafted {
		drafted += c.Drafted[i]
		accepted += c.Accepted[i]
	}
	return drafted, accepted
}

// count adds drafts of one row.
func (c *DraftCounts) count(source DraftSource, drafted, accepted int) {
	if drafted > 0 {
		c.Rows++
	}
	c.Drafted[source] += uint64(drafted)
	c.Accepted[source] += uint64(accepted)
}
