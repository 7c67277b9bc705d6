package server

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/bundle"
	"github.com/coppice-llm/coppice/events/card"
)

// TestWorkerCard: holders of a key can read the card, also during a shutdown.
func TestWorkerCard(t *testing.T) {
	want := &card.Card{Name: "worker-1", URL: "http://10.0.0.1:8080", Models: []string{"nano"}, Keyed: true, BlockTokens: 16, ToolsPrompt: "auto", Epoch: 7,
		ZMQ: &card.ZMQ{Port: 5557, ReplayPort: 5558, Topic: "kv@10.0.0.1:8080@nano"}, Profile: &card.Profile{Step: 0.01}}
	b := start(t, setup{Server: Config{Card: want, Keys: twoTenants}, Sim: slow()})
	if a := b.do("GET", card.Path, ""); a.StatusCode != 401 {
		t.Errorf("without a key: %s %s", a.Status, a.body)
	}
	b.key = "secret-of-a"
	read := func() {
		t.Helper()
		a := b.do("GET", card.Path, "")
		got, err := card.Parse(a.body)
		if a.StatusCode != 200 || err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s %s, %v", a.Status, a.body, err)
		}
	}
	read()
	if a := b.do("POST", card.Path, "{}"); a.StatusCode != 405 {
		t.Errorf("POST: %s %s", a.Status, a.body)
	}
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		b.try(t.Context(), "POST", "/v1/completions", `{"prompt":"x","max_tokens":1000,"ignore_eos":true}`)
	}()
	b.until(func(s *coppice.Stats) bool { return s.Scheduler.Running == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	down := make(chan struct{})
	go func() {
		defer close(down)
		b.srv.Shutdown(ctx)
	}()
	b.until(func(*coppice.Stats) bool { return b.srv.Draining() })
	read()
	cancel()
	<-down
	<-asked
}

// TestWorkerTokenizer: routers get the worker's tokenizer files unchanged.
func TestWorkerTokenizer(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), bytes.Repeat([]byte("{}"), 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	want, err := bundle.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	b := start(t, setup{Server: Config{Card: &card.Card{Name: "w"}, Bundle: want, Keys: twoTenants}, Sim: slow()})
	if a := b.do("GET", card.TokenizerPath, ""); a.StatusCode != 401 {
		t.Errorf("without a key: %s", a.Status)
	}
	b.key = "secret-of-a"
	a := b.do("GET", card.TokenizerPath, "")
	if got, err := bundle.Of(a.body); err != nil || got.Digest != want.Digest {
		t.Errorf("%s, %d bytes: %v", a.Status, len(a.body), err)
	}
	if c, err := card.Parse(b.do("GET", card.Path, "").body); err != nil || c.Tokenizer != want.Digest {
		t.Errorf("the card says %+v, %v", c, err)
	}
	b = start(t, setup{Server: Config{Card: &card.Card{Name: "w"}}, Sim: slow()})
	b.refused("GET", card.TokenizerPath, "", 404, "unknown_url")
}

func TestNoWorkerCard(t *testing.T) {
	b := start(t, setup{})
	b.refused("GET", card.Path, "", 404, "unknown_url")
	if a := b.do("GET", "/metrics", ""); strings.Contains(string(a.body), "coppice_events_") {
		t.Error("there are metrics of events, and no events")
	}
	cfg := Config{Node: b.node, Model: "nano", Card: &card.Card{Name: "a.b"}}
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "Card") || !strings.Contains(err.Error(), "a.b") {
		t.Errorf("%v", err)
	}
}

// TestEventsMetrics: each figure of the publisher has its own metric.
func TestEventsMetrics(t *testing.T) {
	m := events.PublisherMetrics{Events: 1, Batches: 2, Heartbeats: 3, Bytes: 4, Lost: 6, Snapshots: 9, SendErrors: 10, HeldBlocks: 11}
	b := start(t, setup{Server: Config{Events: func() events.PublisherMetrics { return m }}})
	text := string(b.do("GET", "/metrics", "").body)
	for _, want := range []string{
		"published_total 1", "batches_total 2", "heartbeats_total 3", "bytes_total 4", "lost_total 6", "snapshots_total 9", "send_errors_total 10", "held_blocks 11",
	} {
		want = "\ncoppice_events_" + strings.Replace(want, " ", `{model_name="nano"} `, 1) + "\n"
		if !strings.Contains(text, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}
