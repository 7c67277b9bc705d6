package view

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/radixcache/missratio"
	"github.com/coppice-llm/coppice/scheduler"
)

func openNode(t *testing.T, cfg scheduler.Config) *coppice.Node {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "nano")
	if err := random.Generate(dir, random.Spec{Preset: random.Nano, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	m, err := model.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	backend, err := cpu.Open(m, cpu.Config{KVTokens: 4096, PageTokens: 4, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	node, err := coppice.Open(coppice.Config{Backend: backend, Tokenizer: m.Tokenizer(), Scheduler: cfg})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	return node
}

// TestNodeWithoutCacheIsSeen: without a cache there is no tree and no curve, which is no error.
// A closed node is an error.
func TestNodeWithoutCacheIsSeen(t *testing.T) {
	node := openNode(t, scheduler.Config{DisableCache: true})
	f := NewFeed(Config{Source: node, Period: 10 * time.Millisecond})
	defer f.Close()
	w, err := f.Watch(Full, "")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	frame := <-w.Frames()
	for _, list := range []string{"shown", "tenants", "running", "waiting", "finished", "tiers"} {
		if bytes.Contains(frame, []byte(`"`+list+`":null`)) {
			t.Errorf("%s is null", list)
		}
	}
	if s := decode(t, frame); s.Server.Error != "" || len(s.Tree.Shown) != 0 || s.Curve != nil || s.Pool.IdlePages != s.Pool.Pages {
		t.Errorf("%+v", s)
	}
	node.Close()
	for frame := range w.Frames() { // the first may be from before
		if s := decode(t, frame); s.Server.Error != "" {
			break
		}
	}
}

// TestNodeIsSeen: on a real node, two prompts with a common prefix give a tree that forks, with
// its text.
func TestNodeIsSeen(t *testing.T) {
	node := openNode(t, scheduler.Config{Curve: missratio.New(missratio.DefaultSamples)})
	const common = "What is light, and of what is it made? "
	for _, end := range []string{"Ask the sun.", "Newton knew it."} {
		for _, err := range node.Generate(t.Context(), coppice.Request{Prompt: common + end, MaxTokens: 3, IgnoreEOS: true, Tenant: "acme"}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	f := NewFeed(Config{Source: node, Model: "nano", Text: Texts(node.Tokenizer())})
	defer f.Close()
	w, err := f.Watch(Full, "")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	s := decode(t, <-w.Frames())
	p := s.Pool
	if s.Server.Error != "" || s.Totals.Requests != 2 || s.Totals.CachedTokens == 0 || p.Pages != p.IdlePages+p.HeldPages+p.EvictablePages+p.ProtectedPages || p.EvictablePages == 0 {
		t.Fatalf("%+v\n%+v\n%+v", s.Server, s.Totals, p)
	}
	trunk := s.Tree.Shown[0]
	branches := 0
	for _, n := range s.Tree.Shown[1:] {
		if n.Parent == trunk.ID {
			branches++
		}
	}
	if trunk.Parent != 0 || branches < 2 || trunk.Reuses == 0 || !strings.Contains(trunk.Text, "What is light") || s.Tree.Nodes != len(s.Tree.Shown) {
		t.Errorf("%d branches of %+v, of %d nodes", branches, trunk, s.Tree.Nodes)
	}
	if s.Curve == nil || len(s.Curve.HitRate) != len(s.Curve.CapacityTokens) || s.Curve.PoolTokens != p.Pages*p.PageTokens {
		t.Errorf("%+v", s.Curve)
	}
}
