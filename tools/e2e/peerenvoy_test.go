//go:build unix

package e2e

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// envoyDir is the module of Coppice's endpoint picker, and of the documented configuration of Envoy.
var envoyDir = filepath.Join("..", "..", "integrations", "envoy")

// envoy: the real Envoy asks coppice-epp, in front of the two vLLM workers. All that holds behind the gateway holds there, except
// that a stream whose worker dies breaks off.
func (f *vllmFleet) envoy(t *testing.T) {
	e := f.startEnvoy(t, peerDir(t, "envoy"))
	f.mayLose = true // the gateway sees the end of the worker that the last part kills
	for _, part := range []struct {
		name string
		run  func(*vllmFleet, *testing.T)
	}{
		{"residency", (*vllmFleet).residency}, {"chats", (*vllmFleet).chats}, {"eviction", (*vllmFleet).eviction},
		{"hit rate", func(e *vllmFleet, t *testing.T) { f.alikeHits(t, e) }}, {"load", (*vllmFleet).underLoad},
		{"streams", (*vllmFleet).streams}, {"tools", (*vllmFleet).tools}, {"errors", (*vllmFleet).errors}, {"killed", (*vllmFleet).killed},
	} {
		t.Run(part.name, func(t *testing.T) {
			for _, of := range []*vllmFleet{f, e} {
				defer of.reportsTo(of.process.t)
				of.reportsTo(t)
			}
			part.run(e, t)
		})
	}
}

// startEnvoy starts coppice-epp for f's workers, and Envoy with the documented configuration. The fleet that it returns has
// the picker in place of the gateway, and sends requests to Envoy.
func (f *vllmFleet) startEnvoy(t *testing.T, dir string) *vllmFleet {
	t.Helper()
	program := filepath.Join(t.TempDir(), "coppice-epp")
	build := exec.Command("go", "build", "-o", program, "./cmd/coppice-epp")
	build.Dir = envoyDir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build coppice-epp: %v\n%s", err, out)
	}
	var known []foreignWorker
	for _, w := range f.workers {
		known = append(known, foreignWorker{Name: w.name, URL: w.url(), Events: local("tcp", w.events), Replay: local("tcp", w.replay)})
	}
	at := freePorts(t, 4) // the picker's two, and those of Envoy's two listeners
	operators, front := local("http", at[1]), local("http", at[3])
	flags := []string{program, "--listen", fmt.Sprintf("127.0.0.1:%d", at[0]), "--http", fmt.Sprintf("127.0.0.1:%d", at[1])}
	picker := startPeer(t, "coppice-epp", nil, append(flags, foreignFlags(t, vllmBlock, f.workers[0].model, known)...)...)
	picker.answers(operators + "/ready")
	text, err := os.ReadFile(filepath.Join(envoyDir, "e2e", "envoy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	one, two := f.workers[0].port, f.workers[1].port
	var changes []string
	for from, to := range map[int]int{9002: at[0], 10000: at[2], 10001: at[3], 8081: one, 8082: two, 8083: two} {
		changes = append(changes, fmt.Sprintf("port_value: %d}", from), fmt.Sprintf("port_value: %d}", to))
	}
	file := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(file, []byte(strings.NewReplacer(changes...).Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	startPeer(t, "Envoy", nil, filepath.Join(dir, "bin", "envoy"), "-c", file, "--concurrency", "1", "--use-dynamic-base-id",
		"--log-level", "warning").answers(front + "/ready")
	p := &process{t: t, url: front, model: "mini", http: http.DefaultClient, log: picker.log, ended: picker.ended}
	p.client, p.root = p.as("none")
	p.url = operators
	e := &vllmFleet{foreignFleet: newForeignFleet(p, vllmBlock), workers: f.workers, rng: rand.New(rand.NewPCG(33, 5)), whole: f.whole}
	e.front, e.breaks = front, true
	for _, w := range known {
		e.follows(w.Name)
	}
	return e
}

// alikeHits: of the same requests, in the same order, the same share of tokens is cached behind the gateway and behind Envoy. The documents
// do not fit into one worker's cache.
func (f *vllmFleet) alikeHits(t *testing.T, e *vllmFleet) {
	share := func(of *vllmFleet) float64 {
		for _, w := range f.workers {
			if status, _, text := post(t, w.url()+"/reset_prefix_cache", ""); status != http.StatusOK {
				t.Fatalf("reset: %d %s", status, text)
			}
			// vLLM publishes that it has emptied its cache in its next step. This prompt fills no block.
			if status, _, text := post(t, w.url()+"/v1/completions", map[string]any{"model": "mini", "prompt": []int{7}, "max_tokens": 1}); status != http.StatusOK {
				t.Fatalf("a step: %d %s", status, text)
			}
		}
		of.until("the caches are empty", func() bool { return of.ranks()["one"].Held+of.ranks()["two"].Held == 0 })
		rng := rand.New(rand.NewPCG(7, 7))
		documents := make([][]kv.Token, 10)
		for i := range documents {
			documents[i] = randomTokens(rng, 20*vllmBlock)
		}
		asked, cached := 0, 0
		for range 100 {
			c := of.complete(slices.Concat(documents[rng.IntN(len(documents))], randomTokens(rng, 1+rng.IntN(20))), 4)
			asked, cached = asked+c.Usage.PromptTokens, cached+c.Usage.Details.Cached
		}
		return float64(cached) / float64(asked)
	}
	direct, behind := share(f), share(e)
	t.Logf("cached share of prompt tokens: %.4f behind coppice route, %.4f behind Envoy", direct, behind)
	if math.Abs(direct-behind) > 0.01 || direct < 0.3 {
		t.Errorf("%.4f behind coppice route, %.4f behind Envoy", direct, behind)
	}
}
