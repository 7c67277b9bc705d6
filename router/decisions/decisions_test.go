package decisions

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

var testHead = Head{BlockTokens: 16, Policy: "latency", Weights: router.DefaultWeights(), TierWeights: router.DefaultTierWeights().String(), Profile: router.DefaultProfile(), Predict: true}

// sample writes a recording of requests whose prompts continue each other, and returns it with the hashes of each prompt.
func sample(requests int) (text []byte, written []Decision, prompts [][]kv.BlockHash) {
	e, rng := NewEncoder([16]byte{1, 2, 3}), rand.New(rand.NewPCG(1, 2))
	text = e.AppendHead(nil, testHead)
	describe := func(w kv.Rank) Worker {
		return Describe(fmt.Sprint("w", w.Worker), w, &router.WorkerSpec{TotalBlocks: 100, BatchTokens: 512, Models: []router.ModelID{7}, Pool: 2, Profile: router.Profile{Step: 1}})
	}
	for i := range requests {
		var prompt []kv.BlockHash
		if i > 0 {
			from := prompts[rng.IntN(len(prompts))]
			prompt = slices.Clone(from[:rng.IntN(len(from)+1)])
		}
		for range rng.IntN(5) {
			prompt = append(prompt, kv.BlockHash(rng.Uint64()))
		}
		d := Decision{
			At: time.Duration(i) * time.Millisecond, Attempt: 1, Model: 7, PromptTokens: 16*len(prompt) + 1 + rng.IntN(15), Streamed: true, Reason: "cost",
			Candidates: []Candidate{{Cost: 1.5, Terms: []float64{1, 2, 3, 4}, Overlap: []int{3, 0, 1}, Requests: 4, Pending: 5}, {Cost: 2}},
			Result:     Result{Outcome: Answered, Status: 200, Cached: new(i), TTFT: 3, Total: 4, OutputTokens: 5},
		}
		text, d.Chosen = e.Worker(text, kv.Rank{Worker: kv.WorkerID(1 + rng.IntN(3))}, describe)
		for k := range d.Candidates {
			text, d.Candidates[k].Worker = e.Worker(text, kv.Rank{Worker: kv.WorkerID(1 + k), DP: 1}, describe)
		}
		text = e.AppendDecision(text, &d, prompt, uint64(i%3))
		written, prompts = append(written, d), append(prompts, prompt)
	}
	return text, written, prompts
}

// TestRecording: all that was written comes back; prompts have equal hashes where they are equal, and each hash is written once.
func TestRecording(t *testing.T) {
	text, written, prompts := sample(200)
	rec, err := Read(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	head := testHead
	if head.Version = Version; rec.Head != head {
		t.Errorf("head %+v, want %+v", rec.Head, head)
	}
	if len(rec.Workers) != 5 || rec.Workers[0].Spec(16).Models[0] != 7 || len(rec.Decisions) != len(written) {
		t.Fatalf("%d decisions at %+v", len(rec.Decisions), rec.Workers)
	}
	names := map[kv.BlockHash]Hash{}
	for i := range rec.Decisions {
		got, want := rec.Decisions[i], written[i]
		chain := rec.Chain(&got, nil)
		if len(chain) != len(prompts[i]) {
			t.Fatalf("decision %d has %d blocks, want %d", i, len(chain), len(prompts[i]))
		}
		for k, hash := range prompts[i] {
			if name, ok := names[hash]; ok && name != chain[k] || uint64(chain[k]) == uint64(hash) {
				t.Fatalf("block %x is %x, and was %x", hash, chain[k], name)
			}
			names[hash] = chain[k]
		}
		got.last, want.Blocks = 0, nil
		if len(got.Candidates[1].Overlap) == 0 {
			got.Candidates[1].Overlap = nil
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("decision %d is %+v,\nwant %+v", i, got, want)
		}
	}
	for hash, name := range names {
		if n := bytes.Count(text, fmt.Appendf(nil, "%016x", uint64(name))); n < 1 || bytes.Contains(text, fmt.Appendf(nil, "%016x", uint64(hash))) {
			t.Errorf("block %x is written %d times, or as it is", hash, n)
		}
	}
	for n := range 40 { // a writer that is killed leaves half a line
		if _, err := Read(bytes.NewReader(text[:len(text)-n])); err != nil {
			t.Errorf("without %d bytes: %v", n, err)
		}
	}
}

// TestLongPrompts: the blocks of a prompt are bounded, and so is the memory of the Encoder.
func TestLongPrompts(t *testing.T) {
	e := NewEncoder([16]byte{})
	text := e.AppendHead(nil, testHead)
	text, _ = e.Worker(text, kv.Rank{}, func(kv.Rank) Worker { return Worker{} })
	next := kv.BlockHash(0)
	fresh := func(n int) []kv.BlockHash {
		out := make([]kv.BlockHash, n)
		for i := range out {
			next++
			out[i] = next
		}
		return out
	}
	first := fresh(maxBlocks - 1)
	for _, prompt := range [][]kv.BlockHash{first, fresh(maxBlocks), fresh(maxBlocks + 1)} {
		d := Decision{PromptTokens: 16 * len(prompt), Attempt: 1}
		if text = e.AppendDecision(text, &d, prompt, 0); d.Cut != (len(prompt) > maxBlocks) {
			t.Errorf("%d blocks: cut %v", len(prompt), d.Cut)
		}
	}
	for h := range maxKnown { // as if as many blocks had been written
		e.known[Hash(h)] = struct{}{}
	}
	d := Decision{PromptTokens: 16 * len(first), Attempt: 1}
	text = e.AppendDecision(text, &d, first, 0)
	if len(e.known) > maxKnown || d.After != 0 {
		t.Errorf("%d hashes are remembered", len(e.known))
	}
	rec, err := Read(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var lengths []int
	for i := range rec.Decisions {
		lengths = append(lengths, len(rec.Chain(&rec.Decisions[i], nil)))
	}
	if !slices.Equal(lengths, []int{maxBlocks - 1, maxBlocks, maxBlocks, maxBlocks - 1}) {
		t.Errorf("prompts have %v blocks", lengths)
	}
}

// TestReadRefuses names the line of a fault.
func TestReadRefuses(t *testing.T) {
	head, worker := `{"head":{"version":1,"block_tokens":16}}`+"\n", `{"worker":{"name":"w","id":"1"}}`+"\n"
	decision := func(more string) string { return `{"decision":{"prompt_tokens":40,` + more + `}}` + "\n" }
	for text, want := range map[string]string{
		"": "no head", worker: "line 1: a recording begins", head + head: "line 2: a recording begins", "x\n": "line 1", "{}\n": "line 1",
		`{"head":{"version":2,"block_tokens":16}}` + "\n":                                               "line 1: its version is 2",
		`{"head":{"version":1}}` + "\n":                                                                 "line 1: block_tokens is 0",
		head + "{}\n":                                                                                   "line 2: it is neither",
		head + decision(`"chosen":0`):                                                                   "line 2: it chose worker 0 of 0",
		head + worker + decision(`"chosen":-1`):                                                         "line 3: it chose worker -1 of 1",
		head + worker + decision(`"candidates":[{"worker":1,"overlap":[]}]`):                            "line 3: its candidate 0",
		head + worker + decision(`"candidates":[{"worker":0,"overlap":[-1]}]`):                          "line 3: its candidate 0",
		head + worker + decision(`"after":"0000000000000001"`):                                          "line 3: its first blocks end with",
		head + worker + decision(`"blocks":["0000000000000001","0000000000000001"]`):                    "line 3: its block",
		head + worker + decision(`"blocks":["0000000000000001","0000000000000002","0000000000000003"]`): "line 3: it has over 2 blocks",
		head + worker + decision(`"blocks":["0000000000000000"]`):                                       "line 3: its block",
		head + worker + decision(`"at":-1`):                                                             "line 3: it has a number",
		head + worker + decision(`"text":"x"`):                                                          `unknown field "text"`,
		head + worker + strings.Repeat("x", maxLine+100<<10) + "\n":                                     "line 3: it has over",
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200q: %v, want %q", text, err, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	text, _, _ := sample(5)
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		rec, err := Read(bytes.NewReader(text))
		if err != nil {
			return
		}
		for i := range rec.Decisions {
			if d := &rec.Decisions[i]; len(rec.Chain(d, nil)) > d.PromptTokens/rec.Head.BlockTokens {
				t.Errorf("decision %d has too many blocks", i)
			}
		}
	})
}
