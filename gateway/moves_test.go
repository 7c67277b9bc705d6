package gateway

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/gateway/internal/prompt"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// TestMoves: a worker that registered, died, and registers at another address replaces its old
// entry. One that registers next to a living worker with its name does not.
func TestMoves(t *testing.T) {
	at := func(epoch uint64) *worker {
		w := newWorker(t, "a", true, func(c *card.Card) { c.Epoch = epoch })
		w.card.URL = w.http.URL
		return w
	}
	first, second, stale := at(2), at(3), at(1)
	s := newStand(t, Config{})
	announce := func(w *worker) {
		t.Helper()
		if err := s.members.Announce(&w.card); err != nil {
			t.Fatal(err)
		}
	}
	states := func() map[string]string {
		all := map[string]string{}
		for _, w := range s.Fleet().Workers {
			all[w.URL] = w.State
		}
		return all
	}
	announce(first)
	s.ready(1)
	first.holds(run(0, 40))
	s.until("the events", func() bool { return s.worker("a").Ranks[0].HeldBlocks == 10 })
	announce(second)
	s.until("the second one is refused", func() bool { is := states(); return len(is) == 2 && is[second.http.URL] == "refused" })
	first.sick.Store(true)
	s.until("the second one is all there is", func() bool { is := states(); return len(is) == 1 && is[second.http.URL] == "healthy" })
	s.until("nothing of the first one is believed", func() bool { w := s.worker("a"); return w.Mode == "events" && w.Ranks[0].HeldBlocks == 0 })
	if r := s.ask(t.Context(), run(0, 40), ``); r.worker() != "a" || r.Header.Get(headerOverlap) != "0" {
		t.Errorf("%s has %s blocks", r.worker(), r.Header.Get(headerOverlap))
	}
	announce(stale)
	s.until("an older one is refused", func() bool { return states()[stale.http.URL] == "refused" })
	second.sick.Store(true)
	s.until("the second one is lost", func() bool { return states()[second.http.URL] == "lost" })
	if is := states(); is[stale.http.URL] != "refused" {
		t.Errorf("%v", is)
	}
	s.members.Gone("a", 0)
	if is := states(); len(is) != 0 {
		t.Errorf("%v are there when a is gone", is)
	}
}

// TestModelLengths: a model's limit is the smallest known limit of its workers.
func TestModelLengths(t *testing.T) {
	var all []*worker
	for name, length := range map[string]int{"a": 0, "b": 8192, "c": 4096} {
		all = append(all, newWorker(t, name, false, func(c *card.Card) { c.Models, c.MaxModelTokens = []string{"m", "of-" + name}, length }))
	}
	s := newStand(t, Config{}, all...)
	s.ready(3)
	for path, want := range map[string]string{"m": `,"max_model_len":4096}`, "of-a": `"owned_by":"fleet"}`, "of-b": `,"max_model_len":8192}`} {
		res, err := http.Get(s.url + "/v1/models/" + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || !strings.HasSuffix(string(text), want) {
			t.Errorf("%s: %v %s, want %s", path, err, text, want)
		}
	}
	for _, w := range all { // like vLLM, which has no epoch, restarted with another length
		w.mu.Lock()
		w.card.MaxModelTokens /= 2
		w.mu.Unlock()
	}
	s.until("the new lengths", func() bool { r := s.members.Summary(); return r.Tokens["m"] == 2048 && r.Tokens["of-b"] == 4096 })
}

// TestModelsChange: a worker that loads an adapter keeps its blocks and requests.
func TestModelsChange(t *testing.T) {
	a := newWorker(t, "a", true, nil)
	s := newStand(t, Config{}, a)
	s.ready(1)
	a.holds(run(0, 40))
	s.until("the events", func() bool { return s.worker("a").Ranks[0].HeldBlocks == 10 })
	asked, goOn := make(chan struct{}, 1), make(chan struct{})
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-goOn
		a.complete(rw, r)
	})
	done := make(chan reply, 1)
	go func() { done <- s.ask(t.Context(), run(0, 80), `,"model":"m"`) }()
	<-asked
	before := s.members.EventCounts()
	for _, models := range [][]string{{"m", "adapter"}, {"m", "other"}, {"m"}} {
		a.mu.Lock()
		a.card.Models = models
		a.mu.Unlock()
		s.until("its models", func() bool { return slices.Equal(slices.Sorted(slices.Values(models)), s.members.Summary().Models) })
		w, now := s.worker("a"), s.members.EventCounts()
		if r := w.Ranks[0]; w.State != "healthy" || r.Requests != 1 || r.HeldBlocks != 10 || now.Snapshots != before.Snapshots {
			t.Errorf("with %v it is %s and has %d requests, %d blocks; %d snapshots, %d before", models, w.State, r.Requests, r.HeldBlocks, now.Snapshots, before.Snapshots)
		}
	}
	close(goOn)
	if r := <-done; r.StatusCode != 200 {
		t.Errorf("%s %s", r.Status, r.text)
	}
	s.idle()
}

// TestRenamed: a process restarted at the same address under another name leaves no metrics of
// its old name.
func TestRenamed(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	s := newStand(t, Config{}, a)
	s.ready(1)
	if r := s.ask(t.Context(), run(0, 8), ``); r.worker() != "a" {
		t.Fatalf("%s %s", r.Status, r.text)
	}
	s.until("it is counted", func() bool {
		return s.open.Count() == 0
	})
	a.mu.Lock()
	a.card.Name, a.card.Epoch = "b", 2
	a.mu.Unlock()
	s.until("the other", func() bool { return s.worker("b").State == "healthy" })
	families, err := s.cfg.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.Contains(f.String(), `value:"a"`) {
			t.Errorf("%v", f)
		}
	}
}

// TestWorkersRead: prompts are read as most workers read them, and no further than any of them
// would.
func TestWorkersRead(t *testing.T) {
	all := []*worker{
		newWorker(t, "a", false, func(c *card.Card) { c.MaxModelTokens, c.ControlTokens, c.ToolsPrompt = 100, "text", "auto" }),
		newWorker(t, "b", false, func(c *card.Card) { c.MaxModelTokens, c.ControlTokens, c.ToolsPrompt = 300, "text", "auto" }),
		newWorker(t, "c", false, func(c *card.Card) { c.MaxModelTokens, c.ControlTokens = 200, "refuse" }),
	}
	s := newStand(t, Config{}, all...)
	s.ready(3)
	if as := readAs(s.members.Summary()); as.MaxTokens != 300 || as.Controls != chat.Text || as.ToolsPrompt != chat.AutoTools {
		t.Errorf("%+v", as)
	}
	all[1].mu.Lock()
	all[1].card.MaxModelTokens, all[1].card.ControlTokens, all[1].card.ToolsPrompt, all[1].card.Epoch = 0, "", "", 2
	all[1].mu.Unlock()
	s.until("the new card", func() bool { return readAs(s.members.Summary()) == prompt.As{ToolsPrompt: chat.TemplateTools} })
}
