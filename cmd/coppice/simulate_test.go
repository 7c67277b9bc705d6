package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/scheduler/schedtest"
)

func TestSim(t *testing.T) {
	one, stderr, ok := command(t, "sim", "--seed", "7", "--steps", "40", "--faults")
	if !ok || stderr != "" || !strings.Contains(one, "seed 7") || !strings.Contains(one, "digest:") {
		t.Fatalf("ok %v: %s%s", ok, stderr, one)
	}
	twin, _, ok := command(t, "sim", "--seed", "7", "--steps", "40", "--faults", "--twin")
	if !ok || twin != one {
		t.Errorf("a twin run: ok %v, printed %s, want %s", ok, twin, one)
	}
	if _, trace, ok := command(t, "sim", "--seed", "7", "--steps", "40", "--faults", "--trace"); !ok || strings.Count(trace, "\n") < 40 {
		t.Errorf("ok %v, the trace is %q", ok, trace)
	}
	many, stderr, ok := command(t, "sim", "--seed", "3", "--steps", "20", "--seeds", "12")
	if !ok || stderr != "" || !strings.Contains(many, "3 to 14, no check failed") {
		t.Errorf("ok %v: %s%s", ok, stderr, many)
	}
	if again, _, _ := command(t, "sim", "--seed", "3", "--steps", "20", "--seeds", "12"); again != many {
		t.Errorf("the same seeds gave %s and %s", many, again)
	}
}

// TestSimFails checks that a violation prints one line with the command to replay it.
func TestSimFails(t *testing.T) {
	o := schedtest.Options{Seed: 8, Steps: 40, Faults: true, Fair: true, Tiers: true}
	failure := &schedtest.Failure{Checker: "ledger", Options: o, Step: 41, What: "page 3 is lost"}
	all := (&simCmd{Seed: 1, Seeds: 9}).playMany(t.Context(), func(seed uint64) (schedtest.Report, error) {
		return schedtest.Report{}, map[uint64]error{9: errors.New("the second one"), 8: failure}[seed]
	})
	lines := strings.Split(all.Error(), "\n")
	if len(lines) != 3 || lines[0] != "2 of 9 seeds fail:" || lines[1] != failure.Error() || lines[2] != "the second one" {
		t.Fatalf("%q", lines)
	}
	_, replay, found := strings.Cut(lines[1], "(replay: coppice ")
	if !found {
		t.Fatalf("%q has no command to replay it", lines[1])
	}
	want, err := schedtest.Run(o)
	if err != nil {
		t.Fatal(err)
	}
	if got, stderr, ok := command(t, strings.Fields(strings.TrimSuffix(replay, ")"))...); !ok || got != want.String() {
		t.Errorf("the replay: ok %v, printed %s%s, want %s", ok, stderr, got, want)
	}
	refused(t, []string{"--steps is 0"}, "sim", "--steps", "0")
	refused(t, []string{"--seeds is 0"}, "sim", "--seeds", "0")
	refused(t, []string{"--trace is for one seed"}, "sim", "--seeds", "2", "--trace")
}
