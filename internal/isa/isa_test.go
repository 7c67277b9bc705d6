package isa

import (
	"runtime"
	"slices"
	"testing"

	"github.com/klauspost/cpuid/v2"
)

// TestLevelsNest: code of a level may call code of the levels below it.
func TestLevelsNest(t *testing.T) {
	for upper, lower := range map[Level]Level{AVXVNNI: AVX2, AVX512: AVX2, AVX512VNNI: AVX512, NEONDot: NEON} {
		for _, f := range features[lower] {
			if !slices.Contains(features[upper], f) {
				t.Errorf("%s lacks %v of %s", upper, f, lower)
			}
		}
		if len(features[upper]) <= len(features[lower]) {
			t.Errorf("%s has no more features than %s", upper, lower)
		}
	}
	if len(features[AVX2]) == 0 || len(Levels()) != len(features) {
		t.Errorf("AVX2 has %v; %d levels of %d are listed", features[AVX2], len(Levels()), len(features))
	}
}

// TestEachFeatureIsAsked hides one feature of this machine at a time, as a hypervisor may: no level that
// needs it runs.
func TestEachFeatureIsAsked(t *testing.T) {
	for _, l := range Levels() {
		if !l.Runs() {
			continue
		}
		for _, f := range features[l] {
			cpuid.CPU.Disable(f)
			if l.Runs() {
				t.Errorf("%s runs without %v", l, f)
			}
			cpuid.CPU.Enable(f)
		}
		if !l.Runs() {
			t.Errorf("%s does not run any more", l)
		}
	}
}

func TestLevelsThatNeverRun(t *testing.T) {
	if Level("sse9").Runs() || Level("").Runs() {
		t.Error("an unknown level runs")
	}
	archs := map[string]int{}
	for _, l := range Levels() {
		archs[l.Arch()]++
		if runtime.GOARCH != l.Arch() && l.Runs() {
			t.Errorf("%s runs on %s", l, runtime.GOARCH)
		}
	}
	if archs["amd64"] != 4 || archs["arm64"] != 2 || Level("sse9").Arch() != "" {
		t.Errorf("levels by architecture: %v", archs)
	}
}
