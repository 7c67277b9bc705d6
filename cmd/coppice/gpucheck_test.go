package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestGPUCheckKilled kills the command after its first part, in another run after the second, and so on,
// and checks that the files hold the report of the parts that had ended. By day it is killed once.
func TestGPUCheckKilled(t *testing.T) {
	t.Parallel()
	for parts := 1; parts <= *gpucheckKills; parts++ {
		dir := t.TempDir()
		file, text := filepath.Join(dir, "report.json"), filepath.Join(dir, "report.txt")
		cmd := exec.Command(os.Args[0], "gpucheck", "--backend", "ptxvm", "--json", file, "--text", text)
		cmd.Env = append(os.Environ(), "COPPICE_TEST_MAIN=1")
		said, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(said)
		for lines.Scan() && !strings.HasPrefix(lines.Text(), "part "+strconv.Itoa(parts)+",") {
		}
		cmd.Process.Kill()
		if err := cmd.Wait(); err == nil {
			t.Fatalf("it ended before part %d", parts)
		}
		var report struct {
			Complete bool
			Parts    []struct{ Name, Error string }
		}
		data, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(data, &report)
		}
		if err != nil || report.Complete || len(report.Parts) < parts || report.Parts[parts-1].Error != "" {
			t.Errorf("killed after part %d: %v, %+v", parts, err, report)
		}
		if said, err := os.ReadFile(text); err != nil || !strings.Contains(string(said), "INCOMPLETE: ") {
			t.Errorf("killed after part %d: %v, %s", parts, err, said)
		}
	}
}

var (
	gpucheckKills = flag.Int("gpucheck-kills", 1, "for TestGPUCheckKilled: kill the command after each of this many parts, at most 10")
	gpucheckAll   = flag.Bool("gpucheck-all", false, "TestGPUCheck: all parts, not only those in which the command has a share")
)

// TestGPUCheck checks that the command completes in the interpreter and writes its report. By day it runs the first part, and
// those with what the command gives to package gpucheck, whose test runs all others.
func TestGPUCheck(t *testing.T) {
	t.Parallel()
	file, profile := filepath.Join(t.TempDir(), "report.json"), filepath.Join(t.TempDir(), "profile.json")
	args, parts := []string{"gpucheck", "--backend", "ptxvm", "--json", file, "--profile", profile}, 11
	if !*gpucheckAll {
		args, parts = append(args, "--parts", "driver,profile,conversations"), 3
	}
	stdout, stderr, ok := command(t, args...)
	if !ok || !strings.Contains(stdout, "0 failed") || *gpucheckAll && !strings.Contains(stdout, "tokens/s") {
		t.Fatalf("ok %v: %s%s", ok, stdout, stderr)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Complete bool
		Parts    []struct{ Name, Error string }
		Checks   []struct{ OK bool }
		Chat     struct{ Identical bool }
	}
	if err := json.Unmarshal(text, &report); err != nil || len(report.Checks) < parts || !report.Complete || len(report.Parts) != parts || !report.Chat.Identical {
		t.Errorf("%s, %v", text, err)
	}
	if _, stderr, ok := command(t, "gpucheck", "--backend", "ptxvm", "--profile", filepath.Join(profile, "no", "file")); ok || !strings.Contains(stderr, "--profile: ") {
		t.Errorf("ok %v: %s", ok, stderr)
	}
	if p, err := openProfile(profile); err != nil || p.Model.Hidden != 64 || p.Model.KVHeads != 2 {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestGPUCheckParts: a part that does not exist is refused with the names of those that do.
func TestGPUCheckParts(t *testing.T) {
	refused(t, []string{`"speeed"`, "driver, conformance", "conversations"}, "gpucheck", "--backend", "ptxvm", "--parts", "speeed")
}
