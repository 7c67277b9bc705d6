package schedtest

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Options choose a world. The zero value is seed 0 with the default number of steps.
type Options struct {
	// Seed decides everything: the world, its load, its faults.
	Seed uint64
	// Steps is how many plans run while requests arrive; then the open ones run to their
	// ends. Default 300.
	Steps int
	// Faults adds slow steps, failing rows, late answers of the pool and, in some
	// worlds, the loss of the device.
	Faults bool
	// Fair makes a world of tenants with habits of their own under the policy DLPM.
	Fair bool
	// Tiers puts tiers below the device of every world with a cache; else one world of three
	// has some.
	Tiers bool
	// Plant is a bug to be found by a checker. Default none.
	Plant Plant
	// Trace, if set, gets a line for each thing that happens, and the stack of a
	// panic. Errors of writing are ignored.
	Trace io.Writer
}

// WithDefaults fills what is zero.
func (o Options) WithDefaults() Options {
	if o.Steps == 0 {
		o.Steps = 300
	}
	return o
}

// Validate reports all faults at once, by field and value.
func (o Options) Validate() error {
	var errs []error
	if o.Steps < 0 {
		errs = append(errs, fmt.Errorf("schedtest: Steps is %d, want 0 (default) or more", o.Steps))
	}
	if o.Plant >= plantCount {
		errs = append(errs, fmt.Errorf("schedtest: Plant is %d, want one of %v", o.Plant, Plants()))
	}
	return errors.Join(errs...)
}

// Command replays the world from a terminal.
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
	if o.Plant != NoPlant {
		fmt.Fprintf(&b, " --plant %v", o.Plant)
	}
	return b.String()
}

// Failure is a promise that was broken. Its text is one line.
type Failure struct {
	Checker string // that found it
	Options Options
	Step    int    // plans made so far
	What    string // with the values
}

func (f *Failure) Error() string {
	return fmt.Sprintf("%s: seed %d, step %d: %s (replay: %s)", f.Checker, f.Options.Seed, f.Step, f.What, f.Options.Command())
}

// oneLine makes the text of an error fit into a failure.
func oneLine(err error) string {
	return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
}
