package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGPUCheck checks that the command completes in the interpreter and writes its report.
func TestGPUCheck(t *testing.T) {
	t.Parallel()
	file, profile := filepath.Join(t.TempDir(), "report.json"), filepath.Join(t.TempDir(), "profile.json")
	stdout, stderr, ok := command(t, "gpucheck", "--backend", "ptxvm", "--json", file, "--profile", profile)
	if !ok || !strings.Contains(stdout, "0 failed") || !strings.Contains(stdout, "tokens/s") {
		t.Fatalf("ok %v: %s%s", ok, stdout, stderr)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Checks []struct{ OK bool }
		Speed  []any
		Chat   struct{ Identical bool }
	}
	if err := json.Unmarshal(text, &report); err != nil || len(report.Checks) < 10 || len(report.Speed) == 0 || !report.Chat.Identical {
		t.Errorf("%s, %v", text, err)
	}
	if _, stderr, ok := command(t, "gpucheck", "--backend", "ptxvm", "--profile", filepath.Join(profile, "no", "file")); ok || !strings.Contains(stderr, "--profile: ") {
		t.Errorf("ok %v: %s", ok, stderr)
	}
	if p, err := openProfile(profile); err != nil || p.Model.Hidden != 64 || p.Model.KVHeads != 2 {
		t.Errorf("%+v, %v", p, err)
	}
}
