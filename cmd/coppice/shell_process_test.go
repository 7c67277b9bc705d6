package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestLogWithoutReader checks that a server whose standard error is a broken pipe keeps running
// and ends properly.
func TestLogWithoutReader(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"serve", "--addr", "127.0.0.1:0", "--backend", "sim", "--access-log"}, {"route", "--addr", "127.0.0.1:0", "--worker", "http://127.0.0.1:1", "--probe-every", "1ms"},
	} {
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = append(os.Environ(), "COPPICE_TEST_MAIN=1")
		said, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Process.Kill()
		lines, url := bufio.NewReader(said), ""
		for url == "" {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if m := serverGreets.FindStringSubmatch(line); m != nil {
				url = m[1]
			}
		}
		said.Close()
		for range 50 { // each request logs a line
			res, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":[5],"max_tokens":1}`))
			if err != nil {
				t.Fatalf("%v: %v", args, err)
			}
			io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v ended with %v", args, err)
		}
	}
}
