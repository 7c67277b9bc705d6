package main

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// TestPublishPorts: the port for replays, by default the one after that of the events, is printed when
// it listens, and named with its remedy when it is taken.
func TestPublishPorts(t *testing.T) {
	t.Parallel()
	var events, replays net.Listener
	for events == nil || replays == nil { // two ports in a row
		var err error
		if events, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		port := events.Addr().(*net.TCPAddr).Port
		replays, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+1))
		events.Close()
		if err != nil {
			replays = nil
		}
	}
	port := events.Addr().(*net.TCPAddr).Port
	serve := []string{"serve", "--addr", "127.0.0.1:0", "--backend", "sim", "--profile", "h200", "--no-page",
		"--publish", fmt.Sprintf("zmq://127.0.0.1:%d", port)}
	_, stderr, ok := command(t, serve...)
	for _, want := range []string{"socket for replays", fmt.Sprint(port + 1), "?replay=PORT"} {
		if ok || !strings.Contains(stderr, want) {
			t.Errorf("ok %v, and the error does not name %q: %s", ok, want, stderr)
		}
	}
	replays.Close()
	w := startCoppice(t, "worker", serve...)
	if want := fmt.Sprintf("replays at tcp://127.0.0.1:%d (the next port", port+1); !strings.Contains(w.said.String(), want) {
		t.Errorf("the greeting lacks %q: %s", want, w.said)
	}
	w.kill()
}
