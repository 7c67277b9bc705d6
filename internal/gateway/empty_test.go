package gateway

import (
	"io"
	"net/http"
	"strings"
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
	server := natsServer(t, "127.0.0.1:0")
	url := server.URL()
	server.Close()
	s := newStand(t, Config{NATS: &nats.Config{URL: url, Retry: time.Millisecond}})
	const sentence = "the gateway has no workers, and none can register: NATS has a problem, so there is no news of events and registration"
	s.until("it is reported", func() bool {
		_, text := s.page("/v1/fleet")
		return strings.Contains(text, sentence)
	})
	if r := s.ask(t.Context(), run(0, 8), ``); r.StatusCode != 503 || !strings.Contains(r.text, sentence) {
		t.Errorf("%s %s", r.Status, r.text)
	}
	natsServer(t, strings.TrimPrefix(url, "nats://"))
	s.until("it is over", func() bool {
		_, text := s.page("/v1/fleet")
		return !strings.Contains(text, "NATS does not answer") && strings.Contains(text, "the gateway has no workers: ")
	})
}
