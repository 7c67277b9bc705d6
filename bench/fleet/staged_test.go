package fleet

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// TestPolicyText checks that policies round-trip through text, and that errors name the fault.
func TestPolicyText(t *testing.T) {
	for text, want := range map[string]Routing{
		"latency":             {},
		"2025":                {Router: router.Cost2025},
		"buckets:4:turn":      {Staged: Staged{Buckets: 4}},
		"buckets:1:prefix":    {Staged: Staged{Buckets: 1, Stage: router.ByPrefix}},
		"buckets:64:prefix:9": {Staged: Staged{Buckets: 64, Stage: router.ByPrefix, PrefixBlocks: 9}},
	} {
		var p Routing
		if err := p.UnmarshalText([]byte(text)); err != nil || p != want || p.String() != text {
			t.Errorf("%s is %+v, written %s, %v", text, p, p, err)
		}
	}
	if p := (Routing{router.CostRoundRobin, Staged{Buckets: 2}}); p.String() != "buckets:2:turn round-robin" {
		t.Error(p)
	}
	for text, want := range map[string]string{
		"best": "unknown policy", "buckets": "unknown policy", "buckets:": "want buckets:N:turn or", "buckets:4": "want buckets:N", "buckets:0:turn": `"0" buckets`,
		"buckets:65:turn": "at most 64", "buckets:x:turn": `"x" buckets`, "buckets:4:best": "unknown staging", "buckets:4:turn:5": `"5" blocks`,
		"buckets:4:prefix:0": `"0" blocks`, "buckets:4:prefix:1:2": "5 parts",
	} {
		var p Routing
		if err := p.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is %+v, %v, want %q", text, p, err, want)
		}
	}
}

// listed is a worker that reports its requests to the test.
type listed struct {
	Worker
	gets func(*Request)
}

func (l *listed) Submit(now time.Duration, r *Request) error {
	l.gets(r)
	return l.Worker.Submit(now, r)
}

// TestStaged checks that under both stagings all requests are answered, that the beginning
// of a prompt determines the bucket of workers that may get it, and that one bucket gives
// the same result as none.
func TestStaged(t *testing.T) {
	trace := generated(t, "chat", 300, 8)
	plain := played(t, Config{Workers: 8, Rate: 60}, trace)
	one := played(t, Config{Workers: 8, Rate: 60, Staged: Staged{Buckets: 1}}, trace)
	if one.Policy = plain.Policy; fmt.Sprint(one) != fmt.Sprint(plain) {
		t.Errorf("one bucket of all: %v\nno buckets: %v", one, plain)
	}
	for _, stage := range []router.Staging{router.ByTurn, router.ByPrefix} {
		cfg := Config{Workers: 8, Rate: 60, Staged: Staged{Buckets: 4, Stage: stage, PrefixBlocks: 16}}.WithDefaults()
		p, err := newPlay(cfg, trace)
		if err != nil {
			t.Fatal(err)
		}
		_, pools, err := cfg.stages(cfg.Workers)
		if err != nil {
			t.Fatal(err)
		}
		homes := map[kv.BlockHash]map[router.PoolID]bool{} // buckets by the deciding hash
		for i := range p.workers {
			p.workers[i].Worker = &listed{p.workers[i].Worker, func(r *Request) {
				if n := min(len(r.Hashes), 16); n > 0 {
					prefix := r.Hashes[n-1]
					if homes[prefix] == nil {
						homes[prefix] = map[router.PoolID]bool{}
					}
					homes[prefix][pools[i]] = true
				}
			}}
		}
		if err := p.run(func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		if r := p.summarise(); r.OutputTokens != plain.OutputTokens || r.PromptTokens != plain.PromptTokens || r.Policy != fmt.Sprintf("buckets:4:%v:16", stage) {
			t.Errorf("%v: %+v", stage, r)
		}
		most := 0
		for _, in := range homes {
			most = max(most, len(in))
		}
		if (most == 1) != (stage == router.ByPrefix) {
			t.Errorf("%v: a prefix was in %d buckets", stage, most)
		}
	}
	if _, err := Play(context.Background(), Config{Workers: 3, Rate: 1, Staged: Staged{Buckets: 4}}, trace); err == nil || !strings.Contains(err.Error(), "Buckets is 4") {
		t.Errorf("more buckets than workers: %v", err)
	}
}
