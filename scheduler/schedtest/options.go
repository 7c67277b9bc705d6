package schedtest

import (
	"fmt"
	"io"
	"strings"

	"github.com/coppice-llm/coppice/internal/bounds"
)

// Options select a world. The zero value is seed 0 with the default number of steps.
type Options struct {
	// Seed determines everything: the world, its load, its faults.
	Seed uint64
	// Steps is the number of plans while requests arrive; then the open requests run to their
	// ends. Default 300.
	Steps int `default:"300" min:"0"`
	// Faults adds slow steps, failing rows, late answers of the pool and, in some
	// worlds, the loss of the device.
	Faults bool
	// Fair makes a world of tenants with different habits under a policy that is fair.
	Fair bool
	// Tiers adds tiers below the device to every world with a cache; without it one world of
	// three has some, and with Faults one of two.
	Tiers bool
	// Trace, if set, gets a line for each event, and the stack of a panic. Write errors are
	// ignored.
	Trace io.Writer

	plant func() bug // makes the planted bug of each run; nil: none
}

// WithDefaults returns a copy with defaults for zero fields.
func (o Options) WithDefaults() Options { return bounds.Fill(o) }

// Validate reports all faults at once, by field and value.
func (o Options) Validate() error { return bounds.Check("schedtest", o) }

// Command returns the command that replays the world.
func (o Options) Command() string {
	var b strings.Builder
	fmt.Fprintf(&b, "coppice sim --seed %d --steps %d", o.Seed, o.Steps)
	if o.Faults {
		b.WriteString(" --faults")
	}
	if o.Fair {
		b.WriteString(" --fair")
	}
	if o.Tiers {
		b.WriteString(" --tiers")
	}
	return b.String()
}

// Failure is a broken promise. Its text is one line.
type Failure struct {
	Checker string // name of the checker that found it
	Options Options
	Step    int    // number of plans made so far
	What    string // the fault, with its values
}

func (f *Failure) Error() string {
	return fmt.Sprintf("%s: seed %d, step %d: %s (replay: %s)", f.Checker, f.Options.Seed, f.Step, f.What, f.Options.Command())
}

// oneLine joins the lines of a text.
func oneLine(text string) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ")
}
