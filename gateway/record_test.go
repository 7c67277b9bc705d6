package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coppice-llm/coppice/bench/whatif"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/gateway/internal/members"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/decisions"
)

// TestRecord: the file has each try of each request, with what was known and learnt, and no text, tokens or plain hash.
func TestRecord(t *testing.T) {
	a, b := newWorker(t, "a", true, func(c *card.Card) { c.MaxRunning = 9 }), newWorker(t, "b", true, nil)
	path := filepath.Join(t.TempDir(), "decisions.jsonl")
	if err := os.WriteFile(path, []byte("of an earlier run"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newStand(t, Config{ProbeEvery: time.Hour, Record: path}, a, b)
	s.ready(2)
	a.holds(run(0, 40))
	s.until("the events", func() bool { return s.worker("a").Ranks[0].HeldBlocks == 10 })
	answers := func(w *worker) http.HandlerFunc {
		return func(rw http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			stream(rw, "data: {}\n\n", "data: {}\n\n", `data: {"usage":{"prompt_tokens_details":{"cached_tokens":36}}}`+"\n\n", "data: [DONE]\n\n")
		}
	}
	a.does(answers(a))
	b.does(answers(b))
	if r := s.ask(t.Context(), run(0, 44), `,"stream":true,"max_tokens":3,"user":"somebody"`); r.worker() != "a" {
		t.Fatalf("%s from %q", r.Status, r.worker())
	}
	a.does(func(rw http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) })
	if r := s.ask(t.Context(), run(0, 42), `,"stream":true`); r.worker() != "b" {
		t.Fatalf("%s from %q", r.Status, r.worker())
	}
	s.until("all are written", func() bool { return s.sum("recorded_decisions_total", "written") == 3 })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if old, err := os.ReadFile(path + ".1"); err != nil || string(old) != "of an earlier run" {
		t.Errorf("the file before is %q, %v", old, err)
	}
	noSecrets(t, path)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rec, err := decisions.Read(f)
	if err != nil || len(rec.Decisions) != 3 || len(rec.Workers) != 2 || rec.Head.Policy != "latency" || rec.Head.BlockTokens != blockTokens {
		t.Fatalf("%+v, %v", rec, err)
	}
	name := func(i int) string { return rec.Workers[i].Name }
	first, died, again := rec.Decisions[0], rec.Decisions[1], rec.Decisions[2]
	if c := first.Candidates; name(first.Chosen) != "a" || first.PromptTokens != 44 || len(c) != 2 || name(c[0].Worker) != "a" || c[0].CachedBlocks() != 10 || c[1].CachedBlocks() != 0 || c[0].Cost >= c[1].Cost ||
		first.Outcome != decisions.Answered || first.Status != 200 || *first.Cached != 36 || first.TTFT <= 0 || first.Total < first.TTFT || first.OutputTokens != 4 || first.ExpectedOutput != 3 ||
		!first.Streamed || first.Session == 0 || first.Attempt != 1 || first.Reason != "cost" {
		t.Errorf("first: %+v", first)
	}
	if name(died.Chosen) != "a" || died.Outcome != "unbegun" || died.Attempt != 1 || died.Cached != nil || died.TTFT != 0 {
		t.Errorf("the try at a: %+v", died)
	}
	if name(again.Chosen) != "b" || again.Outcome != decisions.Answered || again.Attempt != 2 || len(again.Candidates) != 1 {
		t.Errorf("the try at b: %+v", again)
	}
	if chain := rec.Chain(&first, nil); len(chain) != 11 || !slices.Equal(chain[:10], rec.Chain(&died, nil)) {
		t.Errorf("chains %x and %x", chain, rec.Chain(&died, nil))
	}
	if w := rec.Workers[slices.IndexFunc(rec.Workers, func(w decisions.Worker) bool { return w.Name == "a" })]; w.TotalBlocks != 4096/blockTokens || w.BatchTokens != 512 || w.MaxRequests != 9 {
		t.Errorf("worker a: %+v", w)
	}
}

// noSecrets checks that a recording has no name of a caller, no prompt, and no hash as it is.
func noSecrets(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	hashes := kv.NewHasher(kv.Namespace{}, blockTokens)
	for i := range 10 {
		hash, local := hashes.Next(run(blockTokens*i, blockTokens))
		for _, h := range []uint64{uint64(hash), uint64(local)} {
			if strings.Contains(string(text), fmt.Sprintf("%016x", h)) || strings.Contains(string(text), fmt.Sprint(h)) {
				t.Errorf("hash %x is in the file", h)
			}
		}
	}
	if strings.Contains(string(text), "somebody") || strings.Contains(string(text), "prompt\"") {
		t.Errorf("%s", text)
	}
}

// TestRecordNeedsAFile: a gateway that can't record does not start.
func TestRecordNeedsAFile(t *testing.T) {
	if g, err := New(Config{Record: filepath.Join(t.TempDir(), "none", "x")}); err == nil || !strings.Contains(err.Error(), "recording: can't begin") {
		t.Errorf("%v %v", g, err)
	}
}

// modelled is a worker with fixed costs and an endless cache, in virtual time: it computes a prompt at a time, and decodes beside that.
type modelled struct {
	name    string
	at      *pipes
	compute chan struct{}         // has room for one; not a mutex, for which the clock would not advance
	cached  map[kv.BlockHash]bool // owned by the goroutine that filled compute
}

const modelledToken, modelledBase, modelledDecode = 500 * time.Microsecond, 5 * time.Millisecond, 2 * time.Millisecond

func (m *modelled) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+card.Path, func(rw http.ResponseWriter, r *http.Request) {
		rw.Write((&card.Card{Name: m.name, Models: []string{"m"}, BlockTokens: blockTokens, Epoch: 1,
			Profile: &card.Profile{Step: modelledDecode.Seconds(), Token: modelledToken.Seconds()}}).Append(nil))
	})
	mux.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /v1/completions", func(rw http.ResponseWriter, r *http.Request) {
		var ask struct {
			Prompt []kv.Token
			Output int `json:"max_tokens"`
		}
		if json.NewDecoder(r.Body).Decode(&ask) != nil {
			return
		}
		cached := m.prefill(ask.Prompt)
		rw.Header().Set("Content-Type", "text/event-stream")
		for i := range ask.Output {
			if i > 0 {
				time.Sleep(modelledDecode)
			}
			stream(rw, "data: {}\n\n")
		}
		stream(rw, fmt.Sprintf(`data: {"usage":{"prompt_tokens_details":{"cached_tokens":%d}}}`+"\n\ndata: [DONE]\n\n", cached))
	})
	return mux
}

// prefill computes a prompt after those that arrived before it, and returns how many of its tokens were cached.
func (m *modelled) prefill(prompt []kv.Token) (cached int) {
	m.compute <- struct{}{}
	defer func() { <-m.compute }()
	h := kv.NewHasher(kv.Namespace{}, blockTokens)
	found := true
	for i := 0; i+blockTokens <= len(prompt); i += blockTokens {
		hash, _ := h.Next(prompt[i : i+blockTokens])
		if found = found && m.cached[hash]; found {
			cached = i + blockTokens
		}
		m.cached[hash] = true
	}
	cached = min(cached, len(prompt)-1)
	time.Sleep(modelledBase + time.Duration(len(prompt)-cached)*modelledToken)
	return cached
}

// playModelled sends a load of prompts with shared beginnings, some of them far more frequent than others, to a gateway of this
// policy with three workers in virtual time, and returns the recording of it.
func playModelled(t *testing.T, policy router.Policy) (rec *decisions.Recording) {
	path := filepath.Join(t.TempDir(), "decisions")
	synctest.Test(t, func(t *testing.T) {
		hosts := map[string]*pipes{}
		var given []members.WorkerConfig
		for _, name := range []string{"a", "b", "c"} {
			w := &modelled{name: name, at: newPipes(), compute: make(chan struct{}, 1), cached: map[kv.BlockHash]bool{}}
			w.at.serve(t, w.handler())
			hosts[name+":1"], given = w.at, append(given, members.WorkerConfig{URL: "http://" + name + ":1"})
		}
		g, err := New(Config{Router: router.Config{BlockTokens: blockTokens, Policy: policy, Seed: 3}, Record: path, StallAfter: -1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { g.Close() })
		g.transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			return hosts[addr].dial(ctx, network, addr)
		}
		if err := g.SetWorkers(given); err != nil {
			t.Fatal(err)
		}
		for g.members.Summary().Ready < len(given) {
			time.Sleep(time.Millisecond)
		}
		front := newPipes()
		front.serve(t, g)
		client := http.Client{Transport: &http.Transport{DialContext: front.dial, MaxIdleConnsPerHost: 1000}}
		rng := rand.New(rand.NewPCG(7, 8))
		var all sync.WaitGroup
		for i := range 240 {
			time.Sleep(time.Duration(rng.ExpFloat64() * float64(25*time.Millisecond)))
			group := min(rng.IntN(12), rng.IntN(12), rng.IntN(12)) // the first has a quarter of all requests
			prompt := append(run(10_000*group, 320), run(1_000_000+100*i, 40)...)
			body, err := json.Marshal(map[string]any{"prompt": prompt, "max_tokens": 1 + rng.IntN(20), "stream": true})
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				res, err := client.Post("http://localhost/v1/completions", "application/json", strings.NewReader(string(body)))
				if err != nil {
					t.Error(err)
					return
				}
				defer res.Body.Close()
				if text, err := io.ReadAll(res.Body); err != nil || !strings.HasSuffix(string(text), "[DONE]\n\n") {
					t.Errorf("%v %s", err, text)
				}
			})
		}
		all.Wait()
		client.CloseIdleConnections()
	})
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if rec, err = decisions.Read(f); err != nil {
		t.Fatal(err)
	}
	return rec
}

// TestScoresAsMeasured: a load that three policies route to workers in turn is scored in the order that was measured, from the
// recording of each policy, and the scores are near what was measured.
func TestScoresAsMeasured(t *testing.T) {
	policies := []router.Policy{router.CostLatency, router.Cost2026, router.CostRoundRobin}
	recordings, measured := map[router.Policy]*decisions.Recording{}, map[router.Policy]float64{}
	tables := map[router.Policy]*whatif.Table{}
	for _, p := range policies {
		recordings[p] = playModelled(t, p)
		table, err := whatif.Score(t.Context(), whatif.Config{Policies: policies, Seed: 3}, recordings[p])
		if err != nil {
			t.Fatal(err)
		}
		tables[p], measured[p] = table, table.Measured.TTFTMean
		if n := table.Measured.Requests; n != 240 {
			t.Errorf("%v: %d of 240 requests are recorded", p, n)
		}
	}
	order := func(of map[router.Policy]float64) []router.Policy {
		return slices.SortedFunc(slices.Values(policies), func(a, b router.Policy) int { return cmp.Compare(of[a], of[b]) })
	}
	want := order(measured)
	for i, p := range want[1:] {
		if measured[p] < 1.15*measured[want[i]] {
			t.Errorf("measured: %v: too near each other to show anything", measured)
		}
	}
	for _, p := range policies {
		scores := map[router.Policy]float64{}
		for i, r := range tables[p].Policies {
			scores[policies[i]] = r.TTFTMean
			if share := r.TTFTMean / measured[policies[i]]; share < 0.8 || share > 1.25 {
				t.Errorf("recorded under %v, %v is scored %.1f ms, measured %.1f ms", p, policies[i], r.TTFTMean, measured[policies[i]])
			}
		}
		if got := order(scores); !slices.Equal(got, want) {
			t.Errorf("recorded under %v: %v, want the order %v of %v", p, scores, want, measured)
		}
		t.Logf("recorded under %v: model error %.2f, speed %+v, scores %v, measured %v", p, tables[p].Error, tables[p].Speed, scores, measured)
	}
	if a, b := tables[want[0]].Model.RegretMean, tables[want[2]].Model.RegretMean; a >= b {
		t.Errorf("the regret of the best policy's choices is %.2f ms, that of the worst's %.2f", a, b)
	}
}
