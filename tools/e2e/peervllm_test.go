//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/prometheus/common/expfmt"
	prom "github.com/prometheus/common/model"

	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/kv"
)

// vllmBlock is the size of vLLM's blocks on CPUs: its attention wants multiples of 32.
const vllmBlock = 32

// vllmBlocks is the size of a worker's cache, small enough that requests evict each other's blocks.
// One of them is vLLM's null block.
const vllmBlocks = 160

// vllmWorker is a vLLM process that publishes the events of its cache.
type vllmWorker struct {
	*peer
	name                 string
	dir, model           string
	port, events, replay int
}

// startVLLM starts vLLM on a port of its own, or again on the ports of before.
func (w *vllmWorker) start(t *testing.T) {
	t.Helper()
	events, err := json.Marshal(map[string]any{
		"enable_kv_cache_events": true, "publisher": "zmq", "topic": "kv@" + w.name + "@mini",
		"endpoint": fmt.Sprintf("tcp://*:%d", w.events), "replay_endpoint": fmt.Sprintf("tcp://*:%d", w.replay),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.peer = startPeer(t, "vLLM "+w.name, []string{
		"VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=nobind", "OMP_NUM_THREADS=1", // two workers on two cores
		"VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1", "HF_HUB_OFFLINE=1", "VLLM_LOGGING_LEVEL=INFO", "VLLM_SERVER_DEV_MODE=1", // has /reset_prefix_cache
	}, filepath.Join(w.dir, "bin", "python"), "-m", "vllm.entrypoints.openai.api_server",
		"--host", "127.0.0.1", "--port", strconv.Itoa(w.port), "--model", w.model, "--served-model-name", "mini",
		"--dtype", "bfloat16", "--max-model-len", "4096", "--enforce-eager", "--block-size", strconv.Itoa(vllmBlock),
		"--num-gpu-blocks-override", strconv.Itoa(vllmBlocks), "--enable-prefix-caching", "--enable-prompt-tokens-details",
		"--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--trust-request-chat-template", "--enable-scale-out", "--kv-events-config", string(events))
}

func (w *vllmWorker) url() string { return local("http", w.port) }

// metric returns the sum of a counter or gauge of a worker's /metrics, 0 if it is not there.
func (w *vllmWorker) metric(name string) (sum float64) {
	w.t.Helper()
	resp, err := http.Get(w.url() + "/metrics")
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(prom.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, m := range families[name].GetMetric() {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return sum
}

// vllmFleet is a gateway in front of two vLLM workers. relays stand between the events of the workers
// and the gateway.
type vllmFleet struct {
	*foreignFleet
	workers []*vllmWorker
	relays  []*relay
	rng     *rand.Rand
	whole   *testing.T // the test that the workers end with
}

// startVLLMs starts two vLLM processes with a model of 1.6 M parameters, and a gateway.
func startVLLMs(t *testing.T, dir string) *vllmFleet {
	t.Helper()
	mini := filepath.Join(t.TempDir(), "mini")
	if err := random.Generate(mini, random.Spec{Preset: random.Mini, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	f := &vllmFleet{whole: t, rng: rand.New(rand.NewPCG(33, 3))}
	for _, name := range []string{"one", "two"} {
		ports := freePorts(t, 3)
		w := &vllmWorker{name: name, dir: dir, model: mini, port: ports[0], events: ports[1], replay: ports[2]}
		w.start(t)
		f.workers = append(f.workers, w)
		f.relays = append(f.relays, newRelay(t, fmt.Sprintf("127.0.0.1:%d", w.events)))
	}
	var known []foreignWorker
	for i, w := range f.workers {
		w.answers(w.url() + "/health")
		known = append(known, foreignWorker{Name: w.name, URL: w.url(), Events: local("tcp", f.relays[i].port), Replay: local("tcp", w.replay)})
	}
	f.foreignFleet = routeForeign(t, vllmBlock, mini, known)
	f.process.model = "mini"
	return f
}

// worker returns the worker of this name.
func (f *vllmFleet) worker(name string) *vllmWorker {
	i := slices.IndexFunc(f.workers, func(w *vllmWorker) bool { return w.name == name })
	if i < 0 {
		f.t.Fatalf("no worker %q", name)
	}
	return f.workers[i]
}

// tokens returns n random tokens.
func (f *vllmFleet) tokens(n int) []kv.Token { return randomTokens(f.rng, n) }

// counts returns the tokens that all workers looked up in their caches, and those that they found.
func (f *vllmFleet) counts() (queries, hits float64) {
	for _, w := range f.workers {
		queries += w.metric("vllm:prefix_cache_queries_total")
		hits += w.metric("vllm:prefix_cache_hits_total")
	}
	return queries, hits
}

// reportsTo makes t the test that fails if the gateway or a worker does.
func (f *vllmFleet) reportsTo(t *testing.T) {
	f.process.t = t
	for _, w := range f.workers {
		w.peer.t = t
	}
}

// TestPeerVLLM runs two vLLM processes behind the gateway, and Dynamo's indexer beside it if that is
// installed. With one request at a time, the gateway must know exactly what each worker will find.
func TestPeerVLLM(t *testing.T) {
	f := startVLLMs(t, peerDir(t, "vllm"))
	for _, part := range []struct {
		name string
		run  func(*vllmFleet, *testing.T)
	}{
		{"residency", (*vllmFleet).residency}, {"chats", (*vllmFleet).chats}, {"eviction", (*vllmFleet).eviction}, {"gap", (*vllmFleet).gap},
		{"late gateway", (*vllmFleet).late}, {"auto", (*vllmFleet).auto}, {"prompts", (*vllmFleet).prompts}, {"dynamo", (*vllmFleet).dynamo},
		{"load", (*vllmFleet).underLoad}, {"streams", (*vllmFleet).streams}, {"tools", (*vllmFleet).tools},
		{"errors", (*vllmFleet).errors}, {"killed", (*vllmFleet).killed}, {"envoy", (*vllmFleet).envoy},
	} {
		t.Run(part.name, func(t *testing.T) {
			defer f.reportsTo(f.process.t)
			f.reportsTo(t)
			part.run(f, t)
		})
	}
}
