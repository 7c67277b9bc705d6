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

	"github.com/coppice-llm/coppice/kv"
)

// dynamoIndexer is Dynamo's indexer as a process. It reads the same events as the gateway.
type dynamoIndexer struct {
	*peer
	url, model string
	block      int
	workers    map[string]string // names by Dynamo's number
}

// startDynamo starts the indexer, which connects to the events of workers.
func startDynamo(t *testing.T, dir, model string, block int, workers []foreignWorker) *dynamoIndexer {
	t.Helper()
	port := freePorts(t, 1)[0]
	d := &dynamoIndexer{url: local("http", port), model: model, block: block, workers: map[string]string{}}
	d.peer = startPeer(t, "Dynamo's indexer", []string{"DYN_LOG=info"},
		filepath.Join(dir, "bin", "python"), "-m", "dynamo.indexer", "--port", strconv.Itoa(port), "--threads", "1")
	d.answers(d.url + "/health")
	for i, w := range workers {
		d.workers[strconv.Itoa(i+1)] = w.Name
		status, _, text := post(t, d.url+"/register", map[string]any{"instance_id": i + 1, "endpoint": w.Events, "replay_endpoint": w.Replay, "model_name": model, "block_size": block})
		if status != http.StatusCreated && status != http.StatusOK {
			t.Fatalf("register: %d %s", status, text)
		}
	}
	return d
}

// overlaps returns the number of leading blocks of a prompt that each worker holds, by Dynamo's index.
func (d *dynamoIndexer) overlaps(tokens []kv.Token) map[string]int {
	d.t.Helper()
	status, _, text := post(d.t, d.url+"/query", map[string]any{"token_ids": tokens, "model_name": d.model})
	var got struct{ Scores map[string]map[string]int } // matched tokens, by worker and rank
	if err := json.Unmarshal(text, &got); status != http.StatusOK || err != nil {
		d.t.Fatalf("query: %d %s", status, text)
	}
	all := map[string]int{}
	for _, name := range d.workers {
		all[name] = 0
	}
	for number, ranks := range got.Scores {
		for _, n := range ranks {
			all[d.workers[number]] += n / d.block
		}
	}
	return all
}

// active waits until the indexer has connected to the events of all workers.
func (d *dynamoIndexer) active(p *process) {
	p.until("Dynamo's indexer has connected", func() bool {
		resp, err := http.Get(d.url + "/workers")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var all []struct{ Status string }
		if json.NewDecoder(resp.Body).Decode(&all) != nil || len(all) != len(d.workers) {
			return false
		}
		for _, w := range all {
			if w.Status != "active" {
				return false
			}
		}
		return true
	})
}

// agree checks that both indexes have the same overlaps of prompts, as soon as both have applied all
// events, and returns the sum of the overlaps.
func (d *dynamoIndexer) agree(f *foreignFleet, prompts [][]kv.Token) (sum int) {
	f.t.Helper()
	for i, p := range prompts {
		p = append(slices.Clone(p), 100) // so that the last whole block counts for both
		ours, theirs := map[string]int{}, map[string]int{}
		f.until(fmt.Sprintf("both indexes agree on prompt %d", i), func() bool {
			ours, theirs = f.overlaps(p, nil), d.overlaps(p)
			return fmt.Sprint(ours) == fmt.Sprint(theirs)
		})
		for _, n := range ours {
			sum += n
		}
	}
	return sum
}

// TestPeerDynamo: Dynamo's indexer reads the events of two servers and comes to the gateway's index,
// while requests evict what others cached.
func TestPeerDynamo(t *testing.T) {
	dir := peerDir(t, "dynamo")
	const block = 16
	var servers []*process
	var known []foreignWorker
	for _, name := range []string{"one", "two"} {
		ports := freePorts(t, 2)
		s := serve(t, "--name", name, "--publish", fmt.Sprintf("zmq://127.0.0.1:%d?replay=%d", ports[0], ports[1]), "--kv-tokens", "4096")
		servers = append(servers, s)
		known = append(known, foreignWorker{Name: name, URL: s.url, Events: local("tcp", ports[0]), Replay: local("tcp", ports[1])})
	}
	f := &foreignFleet{process: route(t, servers), block: block}
	for _, w := range known {
		f.follows(w.Name)
	}
	d := startDynamo(t, dir, "nano", block, known)
	d.active(f.process)
	rng := rand.New(rand.NewPCG(3, 3))
	var prompts [][]kv.Token
	evicted := false
	for round := range 12 {
		for range 6 {
			p := randomTokens(rng, block*(2+rng.IntN(20))+rng.IntN(block))
			if len(prompts) > 0 && rng.IntN(2) == 0 { // goes on from an earlier one
				of := prompts[rng.IntN(len(prompts))]
				p = slices.Concat(of[:rng.IntN(min(len(of), 600))], p)
			}
			prompts = append(prompts, p)
			if status, _, text := post(t, f.url+"/v1/completions", map[string]any{"model": "nano", "prompt": p, "max_tokens": 3}); status != http.StatusOK {
				t.Fatalf("%d %s", status, text)
			}
		}
		sum, all := d.agree(f, prompts), 0
		for _, p := range prompts {
			all += len(p) / block
		}
		evicted = evicted || sum < all
		if sum == 0 {
			t.Errorf("round %d: nothing is cached", round)
		}
	}
	if !evicted {
		t.Error("nothing was evicted")
	}
	t.Logf("%d prompts, alike", len(prompts))
}

// randomTokens returns n tokens of ordinary text, of any generated vocabulary.
func randomTokens(rng *rand.Rand, n int) []kv.Token {
	all := make([]kv.Token, n)
	for i := range all {
		all[i] = kv.Token(20 + rng.IntN(280))
	}
	return all
}
