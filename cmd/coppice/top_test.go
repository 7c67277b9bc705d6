package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/cockroachdb/datadriven"

	"github.com/coppice-llm/coppice/gateway/fleetview"
	"github.com/coppice-llm/coppice/server/view"
)

// topSample returns a state of a busy server whose prompts contain control characters.
func topSample() *view.State {
	s := &view.State{
		Schema: view.Schema,
		Server: view.Server{Model: "demo-8b", Backend: "cpu", UptimeSeconds: 4321},
		Stats: view.Stats{
			Pool: view.Pool{PageTokens: 16, Pages: 1000, IdlePages: 300, HeldPages: 50, EvictablePages: 450, ProtectedPages: 200},
			Totals: view.Totals{Requests: 12345, Running: 14, Waiting: 2, PromptTokens: 2_500_000, CachedTokens: 2_000_000, HitRate: 0.8, Preemptions: 3, EvictedPages: 52_000,
				DraftTokens: map[string]uint64{"own": 9_000, "tree": 1_000}, AcceptedDraftTokens: map[string]uint64{"own": 6_000, "tree": 200}},
			Tree: view.Tree{Nodes: 14_000},
		},
		Now: view.Point{HitRate: 0.861, TTFTp50Millis: 30.5, TTFTp99Millis: 1344, ITLp50Millis: 9.5, ITLp99Millis: 26, PromptRate: 8415, CachedRate: 7312, OutputRate: 560.4},
	}
	for i := range 60 {
		v := view.Figure(1 + math.Sin(float64(i)/4))
		if i < 10 {
			v = view.Figure(math.NaN())
		}
		h := &s.History
		h.HitRate = append(h.HitRate, v/2)
		h.OutputRate = append(h.OutputRate, 300*v)
		h.TTFTp50Millis = append(h.TTFTp50Millis, 10*v)
		h.ITLp50Millis = append(h.ITLp50Millis, 9.5)
		h.Running = append(h.Running, i%15)
	}
	for i := range 14 {
		s.Running = append(s.Running, view.Running{Request: uint64(100 + i), Sample: i % 2, Tenant: []string{"acme", "a tenant with a long name", "日本語の名前はとても長い"}[i%3],
			PromptTokens: 100 * (i*5%14 + 1), CachedTokens: 64 * (i * 3 % 14), ComputedTokens: 1000 + i, OutputTokens: i * 7, AgeSeconds: float64(140 - 10*i)})
	}
	s.Waiting = []view.Waiting{
		{Request: 120, Cause: "waits for pages", Why: "request 120 waits for pages: needs 9, 3 are free or can be evicted, 1 of these are expected to be needed by running requests", CachedTokens: 10},
		{Request: 121, Sample: 1, Cause: "waits for a slot", Why: "request 121 (sample 1) waits for a slot", CachedTokens: 64},
	}
	for i, text := range []string{"You are a help desk.\nBe brief.\x1b[2J\x1b]0;owned\a", "short", "日本語で答えてください。丁寧にお願いします。短く、正確に、そして親切に。そうすれば皆が喜びます。"} {
		s.Tree.Shown = append(s.Tree.Shown, view.Node{ID: uint32(i + 1), Start: 10 * i, Tokens: 50 * (i + 1), Reuses: uint64(40_000 / (i + 1)), Heat: float64(i), Pins: i, Text: text})
	}
	s.Tree.Shown = append(s.Tree.Shown, view.Node{More: 312, Reuses: 1 << 40})
	for i := range 3 {
		s.Finished = append(s.Finished, view.Finished{Tenant: "acme", Reason: "stop", PromptTokens: 500 - i, CachedTokens: 64 * i, OutputTokens: 20, TTFTMillis: float64(5 + 100*i), TotalMillis: 2345})
	}
	return s
}

func pressed(t *testing.T, m tea.Model, keys string) topModel {
	t.Helper()
	for _, key := range strings.Fields(keys) {
		press := tea.KeyPressMsg{Text: key, Code: []rune(key)[0]}
		switch key {
		case "tab":
			press = tea.KeyPressMsg{Code: tea.KeyTab}
		case "shift+tab":
			press = tea.KeyPressMsg{Code: tea.KeyTab, Mod: tea.ModShift}
		}
		m, _ = m.Update(press)
	}
	return m.(topModel)
}

// The frames must equal those in testdata/top; -rewrite replaces them.
func TestTopFrames(t *testing.T) {
	datadriven.RunTest(t, "testdata/top", func(t *testing.T, d *datadriven.TestData) string {
		width, height, keys := 80, 24, ""
		for _, arg := range d.CmdArgs {
			switch arg.Key {
			case "width":
				arg.Scan(t, 0, &width)
			case "height":
				arg.Scan(t, 0, &height)
			case "keys":
				keys = strings.Join(arg.Vals, " ")
			}
		}
		var m tea.Model = topModel{topScreen: topScreen[view.State]{interval: time.Second}}
		m, _ = m.Update(tea.WindowSizeMsg{Width: width, Height: height})
		switch d.Cmd {
		case "asking":
		case "refused":
			m, _ = m.Update(topNews[view.State]{err: errors.New("no answer: dial tcp 127.0.0.1:8080: connect: connection refused")})
		case "idle":
			nan := view.Figure(math.NaN())
			m, _ = m.Update(topNews[view.State]{snap: &view.State{Schema: view.Schema, Now: view.Point{HitRate: nan, TTFTp50Millis: nan, TTFTp99Millis: nan, ITLp50Millis: nan, ITLp99Millis: nan, PromptRate: nan, OutputRate: nan}}})
		case "busy":
			m, _ = m.Update(topNews[view.State]{snap: topSample()})
		case "lost":
			m, _ = m.Update(topNews[view.State]{snap: topSample()})
			m, _ = m.Update(topNews[view.State]{err: errors.New("no answer: EOF")})
		default:
			t.Fatalf("unknown command %q", d.Cmd)
		}
		plain := pressed(t, m, keys)
		frame := plain.frame()
		lines := strings.Split(frame, "\n")
		if len(lines) > height {
			t.Errorf("%d lines, want %d at most", len(lines), height)
		}
		colored := plain
		colored.colored = true
		for i, line := range strings.Split(colored.frame(), "\n") {
			if lipgloss.Width(line) > width || lipgloss.Width(lines[i]) > width {
				t.Errorf("line %d is %d wide: %q", i, lipgloss.Width(line), line)
			}
		}
		if strings.ContainsAny(frame, "\x1b\a") {
			t.Error("a prompt could write to the terminal")
		}
		return frame + "\n"
	})
}

func TestTopLooksAgainAndAgain(t *testing.T) {
	tries := 0
	var m tea.Model = topModel{topScreen: topScreen[view.State]{width: 80, height: 24, interval: time.Millisecond, get: func() (*view.State, error) {
		tries++
		if tries == 2 {
			return nil, errors.New("gone")
		}
		s := topSample()
		s.Server.Model = fmt.Sprint("try ", tries)
		return s, nil
	}}}
	msg := m.Init()()
	round := func() {
		var cmd tea.Cmd
		m, cmd = m.Update(msg) // topNews: waits for the interval
		if msg = cmd(); msg != tea.Msg(topLook{}) {
			t.Fatalf("%T after news", msg)
		}
		m, cmd = m.Update(msg) // topLook: requests a state
		msg = cmd()
	}
	round()
	if f := m.(topModel).frame(); !strings.Contains(f, "try 1") {
		t.Error(f)
	}
	round()
	if f := m.(topModel).frame(); !strings.Contains(f, "try 1") || !strings.Contains(f, "gone") || !strings.Contains(f, "lost") {
		t.Errorf("without an answer:\n%s", f)
	}
	round()
	if f := m.(topModel).frame(); !strings.Contains(f, "try 3") || strings.Contains(f, "gone") {
		t.Errorf("with one again:\n%s", f)
	}
	m = pressed(t, m, "p")
	m, _ = m.Update(msg) // the state requested before the pause
	_, cmd := m.Update(topLook{})
	if cmd() != tea.Msg(topLook{}) || tries != 4 {
		t.Errorf("while it pauses it looks: %d tries", tries)
	}
	if f := m.(topModel).frame(); !strings.Contains(f, "try 3") || !strings.Contains(f, "paused") {
		t.Errorf("paused:\n%s", f)
	}
	if _, cmd := m.Update(tea.KeyPressMsg{Text: "q", Code: 'q'}); cmd == nil || cmd() != tea.Quit() {
		t.Error("q does not quit")
	}
}

func TestTopOnce(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := asked.Add(1)
		switch key := r.Header.Get("Authorization"); {
		case r.URL.Path != "/v1/view":
			http.NotFound(w, r)
		case key == "Bearer old":
			w.Write([]byte(`{"schema": 99}`))
		case key == "Bearer odd":
			w.Write([]byte("<html>"))
		case key == "Bearer ill":
			http.Error(w, "ill", 500)
		case key != "Bearer good":
			w.WriteHeader(401)
		default:
			s := topSample()
			if n == 1 {
				s.Now.OutputRate = view.Figure(math.NaN())
			}
			json.NewEncoder(w).Encode(s)
		}
	}))
	defer server.Close()
	stdout, stderr, ok := command(t, "top", "--url", server.URL+"/", "--api-key", "good", "--interval", "100ms")
	if !ok || asked.Load() != 2 || !strings.Contains(stdout, "demo-8b") || !strings.Contains(stdout, "560/s") || strings.Contains(stdout, "\x1b") {
		t.Errorf("asked %d times, printed\n%s\n%s", asked.Load(), stdout, stderr)
	}
	for _, tc := range []struct{ url, key, want string }{
		{server.URL, "bad", "--api-key"},
		{server.URL, "old", "schema 99, want 1"},
		{server.URL, "odd", "not a snapshot"},
		{server.URL, "ill", "500"},
		{server.URL + "/other", "good", "only servers of coppice serve"},
		{"http://127.0.0.1:1", "", "does coppice serve or route run there?"},
		{"127.0.0.1:8080", "", "--url"},
		{"ftp://x", "", "--url"},
	} {
		if _, stderr, ok := command(t, "top", "--once", "--url", tc.url, "--api-key", tc.key); ok || !strings.Contains(stderr, tc.want) {
			t.Errorf("%s with %q: ok %v, %q, want %q in it", tc.url, tc.key, ok, stderr, tc.want)
		}
	}
	if _, stderr, ok := command(t, "top", "--interval", "1ms"); ok || !strings.Contains(stderr, "100ms") {
		t.Errorf("ok %v, %q", ok, stderr)
	}
}

// TestTopFleet checks that at a router's URL coppice top shows the fleet, with any names of
// workers.
func TestTopFleet(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/fleet/view" {
			w.WriteHeader(404)
			return
		}
		n := asked.Add(1)
		s := fleetview.State{Schema: fleetview.Schema, Policy: "latency", UptimeS: 10 * float64(n), Open: 3, Troubles: []string{"a worker\x1b[2J is refused"},
			Fleet: fleetview.Sums{Requests: 50 * uint64(n), ConfirmedTokens: 1000, CachedTokens: 800, PredictedTokens: 900}}
		for i := range 30 {
			w := fleetview.Worker{About: fleetview.About{Name: fmt.Sprintf("worker-%d", i), State: "healthy", Mode: "events"}, Requests: i}
			if i == 29 {
				w.Name, w.State = "evil\x1b]0;owned\a", "lost"
			}
			s.Workers = append(s.Workers, w)
		}
		s.Recent = []fleetview.Routed{{Worker: "worker-1", Status: 200, Reason: "cost", PromptTokens: 600, PredictedTokens: 512, CachedTokens: new(496), TTFTMillis: new(12.5), TotalMillis: 340, Attempts: 2},
			{Status: 503, PromptTokens: 5, Error: "no worker\nis ready"}}
		json.NewEncoder(w).Encode(s)
	}))
	defer server.Close()
	stdout, stderr, ok := command(t, "top", "--once", "--url", server.URL, "--interval", "100ms")
	for _, want := range []string{"29 of 30 workers healthy", "5.0 requests/s", "cached 80.0 %, predicted 90.0 %", "worker-28", "… and ", "cost, 2 asked", "no worker↵is"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s%s", want, stdout, stderr)
		}
	}
	if !ok || strings.ContainsAny(stdout, "\x1b\a") {
		t.Errorf("ok %v, %q", ok, stdout)
	}
	for _, size := range [][2]int{{80, 24}, {40, 12}, {10, 3}} {
		m := topFleet{topScreen[fleetview.State]{width: size[0], height: size[1], colored: true, snap: &fleetview.State{Workers: make([]fleetview.Worker, 9)}}}
		lines := strings.Split(m.frame(), "\n")
		if len(lines) > size[1] {
			t.Errorf("%v: %d lines", size, len(lines))
		}
		for _, line := range lines {
			if lipgloss.Width(line) > size[0] {
				t.Errorf("%v: %q is too wide", size, line)
			}
		}
	}
}
