package gateway

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/events/nats"
)

// page returns the gateway's answer to GET.
func (s *stand) page(path string) (status int, text string) {
	s.t.Helper()
	res, err := http.Get(s.url + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// TestEmptyFleet: a gateway without workers explains how to add some, and its lists are empty,
// not null.
func TestEmptyFleet(t *testing.T) {
	s := newStand(t, Config{})
	const sentence = "the gateway has no workers: give it some by --worker"
	if r := s.ask(t.Context(), run(0, 8), ``); r.StatusCode != 503 || !strings.Contains(r.text, sentence) || !strings.Contains(r.text, "no_workers") {
		t.Errorf("%s %s", r.Status, r.text)
	}
	if status, text := s.page("/ready"); status != 503 || !strings.Contains(text, sentence) {
		t.Errorf("%d %s", status, text)
	}
	if _, text := s.page("/v1/fleet"); !strings.Contains(text, `"workers": []`) || !strings.Contains(text, sentence) || strings.Contains(text, "null") {
		t.Error(text)
	}
}

// TestListsAreNeverNull: nor are the lists of a worker that has not answered yet.
func TestListsAreNeverNull(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	a.http.Listener.Close()
	s := newStand(t, Config{}, a)
	s.until("it is lost", func() bool { return s.at(a).State == "lost" })
	if _, text := s.page("/v1/fleet"); strings.Contains(text, "null") || !strings.Contains(text, `"ranks": []`) || !strings.Contains(text, `"models": []`) || !strings.Contains(text, `"troubles": []`) {
		t.Error(text)
	}
}

// TestNATSOutage: while workers can't register, clients and /v1/fleet are told so, until NATS is
// back.
func TestNATSOutage(t *testing.T) {
	addr, open := gate(t, strings.TrimPrefix(natsServer(t, "127.0.0.1:0").URL(), "nats://"))
	s := newStand(t, Config{NATS: &nats.Config{URL: "nats://" + addr, Retry: time.Millisecond}})
	const problem = "NATS has a problem, so there is no news of events and registration"
	const sentence = "the gateway has no workers, and none can register: " + problem
	s.until("it is reported", func() bool {
		_, text := s.page("/v1/fleet")
		return strings.Contains(text, sentence)
	})
	if r := s.ask(t.Context(), run(0, 8), ``); r.StatusCode != 503 || !strings.Contains(r.text, sentence) {
		t.Errorf("%s %s", r.Status, r.text)
	}
	open.Store(true)
	s.until("it is over", func() bool {
		_, text := s.page("/v1/fleet")
		return !strings.Contains(text, problem) && strings.Contains(text, "the gateway has no workers: ")
	})
}

// gate listens on a port, whose address it returns. While open is false it closes each connection at
// once, like a server that is down; after that it passes new connections on to the server at
// target. Unlike a server that is started late, it keeps the port for the whole test.
func gate(t *testing.T, target string) (addr string, open *atomic.Bool) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	open = new(atomic.Bool)
	var running sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	pass := func(from, to net.Conn) {
		io.Copy(to, from)
		from.Close()
		to.Close()
	}
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			if !open.Load() {
				client.Close()
				continue
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			running.Go(func() { pass(client, server) })
			running.Go(func() { pass(server, client) })
		}
	})
	return l.Addr().String(), open
}
