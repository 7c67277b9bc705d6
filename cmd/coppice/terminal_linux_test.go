package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"
)

// hostile has a title, a write to the clipboard, a cleared screen, C1 and a bidirectional control.
const hostile = "\x1b]0;title\x07\x1b]52;c;aGk=\x07\x1b[2J\u009b2J\u202eover"

// openTerminal opens a pseudoterminal. What is written to slave can be read from master.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudoterminals here: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	locked, number := int32(0), uint32(0)
	for _, c := range []struct {
		request uintptr
		value   unsafe.Pointer
	}{{syscall.TIOCSPTLCK, unsafe.Pointer(&locked)}, {syscall.TIOCGPTN, unsafe.Pointer(&number)}} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), c.request, uintptr(c.value)); errno != 0 {
			t.Skipf("no pseudoterminals here: %v", errno)
		}
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudoterminals here: %v", err)
	}
	return master, slave
}

// onTerminal runs coppice with input, and returns what it writes to a terminal.
func onTerminal(t *testing.T, input string, args ...string) string {
	t.Helper()
	master, slave := openTerminal(t)
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "COPPICE_TEST_MAIN=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), slave, slave
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	text, _ := io.ReadAll(master) // ends with EIO when the last writer has closed
	if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("%v: %q", err, text)
	}
	return string(text)
}

// checkShown checks that the text of a terminal shows what hostile would do, and does not do it.
func checkShown(t *testing.T, name, text string) {
	t.Helper()
	if strings.ContainsAny(text, "\x1b\x07\u009b\u202e") {
		t.Errorf("%s sends %q", name, text)
	}
	if !strings.Contains(text, `\x1b]0;title\`) {
		t.Errorf("%s does not show it: %q", name, text)
	}
}

// TestTerminal: what a server, a hub or a model writes is shown on a terminal, and not obeyed. A pipe
// gets the bytes.
func TestTerminal(t *testing.T) {
	t.Parallel()
	quoted, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	var fails atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v1/models":
			fmt.Fprintf(w, `{"data":[{"id":%s}]}`, quoted)
		case fails.Load():
			w.WriteHeader(http.StatusInternalServerError)
			io.WriteString(w, hostile+strings.Repeat("x", 300))
		default:
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%s}}]}\n\ndata: [DONE]\n\n", quoted)
		}
	}))
	defer s.Close()
	checkShown(t, "chat", onTerminal(t, "hello\n", "chat", "--url", s.URL))
	if stdout, stderr, ok := talk(t, "hello\n", "--url", s.URL); !ok || stdout != hostile+"\n" {
		t.Errorf("a pipe gets %q: %s", stdout, stderr)
	}
	fails.Store(true)
	text := onTerminal(t, "hello\n", "chat", "--url", s.URL, "--model-name", "m")
	checkShown(t, "an error of a server", text)
	if strings.Contains(text, strings.Repeat("x", 200)) {
		t.Errorf("an error quotes more than 200 bytes: %q", text)
	}
	dir := nano(t)
	generate := []string{"generate", "--model", dir, "--regexp", `\x1b\]0;title\x07`, "--max-tokens", "40", "x"}
	checkShown(t, "generate", onTerminal(t, "", generate...))
	if stdout, stderr, ok := command(t, generate...); !ok || stdout != "\x1b]0;title\x07\n" {
		t.Errorf("a pipe gets %q: %s", stdout, stderr)
	}
}

// TestTerminalOfHub: the message of a hub is quoted, and shown on a terminal.
func TestTerminalOfHub(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Error-Code", "RevisionNotFound")
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, hostile+strings.Repeat("x", 300))
	}))
	defer s.Close()
	t.Setenv("HF_ENDPOINT", s.URL)
	text := onTerminal(t, "", "pull", "owner/name")
	checkShown(t, "pull", text)
	if !strings.Contains(text, `the hub says "\x1b]0;`) || strings.Contains(text, strings.Repeat("x", 200)) {
		t.Errorf("%q", text)
	}
}

// TestPrintsByTerminal: no command writes to the standard output or error but through package terminal.
// The bars of package progressbar and the frames of coppice top move the cursor themselves.
func TestPrintsByTerminal(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	direct := regexp.MustCompile(`fmt\.Print|os\.Std(out|err)\b(\.[^F]|[^.])`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || file == "progress.go" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if found := direct.Find(text); found != nil {
			t.Errorf("%s has %q: write to terminal.Out() or terminal.Err()", file, found)
		}
	}
}
