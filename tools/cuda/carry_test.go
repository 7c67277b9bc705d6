package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestScript runs gpucheck.sh with programs that note how they are called: the files it names, and the
// exit status if a check or a tool of the sanitizer fails.
func TestScript(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("gpucheck.sh", string(script))
	for name, code := range map[string]string{"nvidia-smi": "0", "coppice": "0", "compute-sanitizer": "${SANITIZED:-0}"} {
		write(name, "#!/bin/sh\necho "+name+" $* >>"+dir+"/calls\nexit "+code+"\n")
	}
	run := func(variables ...string) (calls string, err error) {
		os.Remove(filepath.Join(dir, "calls"))
		cmd := exec.Command(filepath.Join(dir, "gpucheck.sh"), "out", "--fuzz", "1s")
		cmd.Dir, cmd.Env = dir, append(append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH")), variables...)
		err = cmd.Run()
		text, _ := os.ReadFile(filepath.Join(dir, "calls"))
		return string(text), err
	}
	calls, err := run()
	if err != nil || !strings.Contains(calls, "coppice gpucheck --json out/report.json --text out/report.txt --profile out/profile.json --fuzz 1s\n") || strings.Contains(calls, "sanitizer") {
		t.Errorf("%v, %s", err, calls)
	}
	if calls, err := run("SANITIZE=1"); err != nil || strings.Count(calls, "compute-sanitizer --tool ") != 4 {
		t.Errorf("with the sanitizer: %v, %s", err, calls)
	}
	if _, err := run("SANITIZE=1", "SANITIZED=9"); err == nil {
		t.Error("the sanitizer's errors are not in the exit status")
	}
}
