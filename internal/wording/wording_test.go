package wording

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// TestPublic: names of packages go from the beginning of lines, and from there alone.
func TestPublic(t *testing.T) {
	for text, want := range map[string]string{
		"scheduler: queue full":                    "coppice: queue full",
		"actors: scheduler: queue full":            "coppice: queue full",
		"actors: A is 0\nserver: B is 1":           "coppice: A is 0\ncoppice: B is 1",
		"coppice: scheduler: queue full":           "coppice: queue full",
		"open model: no such file":                 "open model: no such file",
		"message 1: chat: no role":                 "message 1: chat: no role",
		"cpu:0 is busy":                            "cpu:0 is busy",
		"the model: it has no weights, see server": "the model: it has no weights, see server",
	} {
		if got := Public(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// TestBare: without names, also after a flag.
func TestBare(t *testing.T) {
	for text, want := range map[string]string{
		"scheduler: queue full":                "queue full",
		"coppice: scheduler: queue full":       "queue full",
		"--model: hub: not there":              "--model: not there",
		"--kv-host: A is 0\nserver: B is 1":    "--kv-host: A is 0\nB is 1",
		"--trace x: bench: damaged":            "--trace x: bench: damaged",
		"message 1: chat: no role, see server": "message 1: chat: no role, see server",
	} {
		if got := Bare(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// TestError: errors are found by the inner variable and by the public one.
func TestError(t *testing.T) {
	inner := errors.New("scheduler: queue full")
	variable := Error(inner)
	err := Error(fmt.Errorf("request 7: %w", fmt.Errorf("%w: 3 wait", inner)))
	if !errors.Is(err, inner) || !errors.Is(err, variable) || errors.Is(err, Error(errors.New("scheduler: no cache"))) {
		t.Errorf("%v is not found by its kind", err)
	}
	if Error(variable) != variable || Error(context.Canceled) != context.Canceled || Error(nil) != nil {
		t.Error("an error that reads well is not returned as it is")
	}
}
