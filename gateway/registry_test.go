package gateway

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/events/nats/embedded"
)

// TestNATSTrouble: a NATS that refuses the password is in the log, for each that needs it.
func TestNATSTrouble(t *testing.T) {
	s, err := embedded.Start(embedded.Config{Addr: "127.0.0.1:0", Dir: t.TempDir(), User: "me", Password: "hush"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	core, logged := observer.New(zapcore.WarnLevel)
	at := nats.Config{URL: strings.Replace(s.URL(), "//", "//me:wrong@", 1), Retry: time.Millisecond}
	g, err := New(Config{NATS: &at, Replicas: &Replicas{NATS: at}, Log: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	told := func(what string) bool {
		for _, e := range logged.FilterMessageSnippet("NATS does not answer").All() {
			if m := e.ContextMap(); m["for"] == what && strings.Contains(m["error"].(string), "Authorization") {
				return true
			}
		}
		return false
	}
	for end := time.Now().Add(time.Minute); !told("events and registration") || !told("replicas"); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("logged is %v", logged.All())
		}
	}
}
