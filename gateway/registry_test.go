package gateway

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/gateway/internal/members"
	"github.com/coppice-llm/coppice/gateway/replica"
	"github.com/coppice-llm/coppice/internal/natstest"
	"github.com/coppice-llm/coppice/router"
)

// TestNATSTrouble: a refused NATS password is logged for each connection that needs it.
func TestNATSTrouble(t *testing.T) {
	s, err := natstest.Start(natstest.Config{Addr: "127.0.0.1:0", User: "me", Password: "hush"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	core, logged := observer.New(zapcore.WarnLevel)
	at := nats.Config{URL: strings.Replace(s.URL(), "//", "//me:wrong@", 1), Retry: time.Millisecond}
	g, err := New(Config{NATS: &at, Replicas: replica.Config{NATS: at}.Join, Log: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	logs := func(what string) bool {
		for _, e := range logged.FilterMessageSnippet("NATS has a problem").All() {
			if m := e.ContextMap(); m["for"] == what && strings.Contains(m["error"].(string), "Authorization") {
				return true
			}
		}
		return false
	}
	for end := time.Now().Add(time.Minute); !logs("events and registration") || !logs("replicas"); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("logged is %v", logged.All())
		}
	}
}

// TestGivenWhileRegistering: a worker that registers while the list is changing gets the list's
// settings.
func TestGivenWhileRegistering(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	a.card.URL = a.http.URL
	s := newStand(t, Config{}, a)
	s.ready(1)
	old := s.members.All()[0]
	set := make(chan error)
	s.dispatch.With(func(*router.Router, time.Duration) { // no worker can leave meanwhile
		go func() { set <- s.SetWorkers([]members.WorkerConfig{{URL: a.http.URL, Name: "b"}}) }()
		taken := func() bool { all := s.members.All(); return len(all) == 1 && all[0] != old }
		for end := time.Now().Add(long); !taken() && time.Now().Before(end); time.Sleep(time.Millisecond) {
		}
		if err := s.members.Announce(&a.card); err != nil {
			t.Error(err)
		}
	})
	if err := <-set; err != nil {
		t.Fatal(err)
	}
	s.until("it has its name", func() bool { return s.worker("b").State == "healthy" })
}
