package main

import (
	"strings"
	"testing"
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
	_, stderr, ok := command(t, "sim", "--seed", "1", "--seeds", "30", "--plant", "early-reuse")
	if ok {
		t.Fatal("no checker finds what was planted")
	}
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	if !strings.Contains(lines[0], "seeds fail") || len(lines) < 2 {
		t.Fatalf("printed %q", stderr)
	}
	_, replay, found := strings.Cut(lines[1], "(replay: coppice ")
	if !found {
		t.Fatalf("%q has no command to replay it", lines[1])
	}
	_, again, ok := command(t, strings.Fields(strings.TrimSuffix(replay, ")"))...)
	if want := "coppice: " + lines[1] + "\n"; ok || again != want {
		t.Errorf("the replay: ok %v, printed %q, want %q", ok, again, want)
	}
	refused(t, []string{"--steps is 0"}, "sim", "--steps", "0")
	refused(t, []string{"--seeds is 0"}, "sim", "--seeds", "0")
	refused(t, []string{"--trace is for one seed"}, "sim", "--seeds", "2", "--trace")
}
