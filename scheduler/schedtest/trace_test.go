package schedtest

import (
	"flag"
	"os"
	"testing"
)

var (
	oneSeed    = flag.Uint64("replay", 0, "print the trace of this seed")
	withFaults = flag.Bool("faults", false, "with faults")
)

func TestTrace(t *testing.T) {
	if *oneSeed == 0 {
		t.Skip("for debugging: -args -replay=SEED [-faults]")
	}
	if _, err := Run(Options{Seed: *oneSeed, Steps: *stepCount, Faults: *withFaults, Trace: os.Stdout}); err != nil {
		t.Error(err)
	}
}
