package gpucheck

import (
	"errors"
	"slices"
	"testing"
)

func TestWarnings(t *testing.T) {
	r := &Report{}
	log := warnings(r)
	log.Info("loaded")
	log.Warn("no graph", "steps", 3, "error", errors.New("out of nodes"))
	if want := []string{`msg="no graph" steps=3 error="out of nodes"`}; !slices.Equal(r.Warnings, want) {
		t.Errorf("warnings %q, want %q", r.Warnings, want)
	}
}
