package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/sim"
)

// A calibration of the nano model writes a profile that bench serving accepts.
func TestCalibrate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out, steps := filepath.Join(dir, "p.json"), filepath.Join(dir, "steps.csv")
	short := []string{"calibrate", "--preset", "nano", "--new-tokens", "64", "--context-tokens", "128", "--rounds", "1", "--threads", "1"}
	stdout, stderr, ok := command(t, append(short, "--json", "--out", out, "--csv", steps)...)
	var got struct {
		Profile sim.Profile   `json:"profile"`
		Fit     sim.FitReport `json:"fit"`
	}
	if err := json.Unmarshal([]byte(stdout), &got); !ok || err != nil {
		t.Fatalf("ok %v, %v: %s", ok, err, stderr)
	}
	if r := got.Fit; r.HeldOut < 10 || r.Train != r.HeldOut*2+(r.Train+r.HeldOut)%3 || !(r.HeldOutMAPE > 0 && r.TrainMAPE > 0) || r.Worst.Nanos < 1 {
		t.Errorf("%+v", r)
	}
	if m := got.Profile.Model; m.Layers != 2 || m.Hidden != 64 || m.Heads != 4 || m.KVHeads != 2 || m.HeadDim != 16 || m.Vocab != 320 || m.MaxPositions != 4096 ||
		m.LinearParams != 2*(64*(64+2*32)+64*64+3*64*192) || m.Params != m.LinearParams+64*320 {
		t.Errorf("%+v", m)
	}
	read, err := openProfile(out)
	if err != nil || read != got.Profile {
		t.Errorf("the file holds %+v, %v", read, err)
	}
	text, err := os.ReadFile(steps)
	if err != nil || strings.Count(string(text), "\n") != 1+got.Fit.Train+got.Fit.HeldOut {
		t.Errorf("%v: %s", err, text)
	}
	table, stderr, ok := command(t, "bench", "serving", "--profile", out, "--requests", "20", "--loads", "chat", "--levels", "low", "--policies", "fcfs")
	if !ok || !strings.Contains(table, "calibrated") {
		t.Errorf("ok %v: %s%s", ok, table, stderr)
	}
}

func TestCalibrateBadInput(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--new-tokens", "0", "--rounds", "0"}, []string{"--new-tokens is 0", "--rounds is 0"}},
		{[]string{"--context-tokens=-1"}, []string{"--context-tokens is -1"}},
		{[]string{"--threads=-1"}, []string{"--threads is -1"}},
		{[]string{"--preset", "huge"}, []string{"huge"}},
		{[]string{"--model", "/nowhere"}, []string{"/nowhere"}},
		{[]string{"--preset", "nano", "--out", "/nowhere/p.json", "--csv", "/nowhere/s.csv"}, []string{"--out", "--csv"}},
	} {
		refused(t, c.want, append([]string{"calibrate"}, c.args...)...)
	}
}

func TestOpenProfile(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct{ name, want string }{
		{"abacus", "abacus"}, {filepath.Join(dir, "none.json"), "none.json"}, {file("empty.json", "{}"), "want all fields"},
		{file("text", "h200"), "profile"}, {file("odd.json", `{"speed": 3}`), "speed"}, {file("half.json", `{"name": "x"}`), "model.params"},
	} {
		if _, err := openProfile(c.name); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "--profile") {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if p, err := openProfile("h100"); err != nil || p.Name != "h100" {
		t.Errorf("h100: %v, %v", p.Name, err)
	}
}
