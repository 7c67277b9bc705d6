package fleet

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/kv"
)

func filled(t *Trace, i int) Request {
	var r Request
	t.fill(i, kv.NewHasher(kv.Namespace{}, BlockTokens), &r)
	return r
}

// TestTracesAreSound checks that requests arrive in order with mean gaps of about one,
// continue earlier requests only, and that a turn's prompt begins with the earlier prompt
// and answer.
func TestTracesAreSound(t *testing.T) {
	for _, name := range Generated() {
		trace := generated(t, name, 2000, 4)
		last, continued := 0.0, 0
		for i, a := range trace.asks {
			if a.at < last || a.after >= i || a.tokens() < 1 || a.answer.n < 1 {
				t.Fatalf("%s: request %d at %v after %v continues %d: %d tokens, %d", name, i, a.at, last, a.after, a.tokens(), a.answer.n)
			}
			last = a.at
			if a.after < 0 || continued == 50 {
				continue
			}
			continued++
			before, now := filled(trace, a.after), filled(trace, i)
			if said := append(before.Tokens, before.Answer...); !slices.Equal(said, now.Tokens[:len(said)]) {
				t.Fatalf("%s: request %d does not begin with what %d said", name, i, a.after)
			}
		}
		if mean := last / float64(trace.Requests()); trace.Requests() == 2000 && math.Abs(mean-1) > 0.1 {
			t.Errorf("%s: mean gap %v", name, mean)
		}
		if (continued > 0) != (name == "chat" || name == "tree") {
			t.Errorf("%s: %d requests continue another", name, continued)
		}
	}
	if _, err := Generate("chat", 0, 1, 1); err == nil {
		t.Error("a trace of no requests")
	}
	if _, err := Generate("chat", MaxRequests+1, 1, 1); err == nil {
		t.Error("a trace above the limit")
	}
}

func recording(t *testing.T) *Recording {
	t.Helper()
	r, err := OpenMooncake(filepath.Join("..", "testdata", "mooncake", "conversation-300.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRecordingIsReplayed checks that lengths, sharing and order are those of the file, and
// that copies share nothing.
func TestRecordingIsReplayed(t *testing.T) {
	r := recording(t)
	one, err := r.Trace(len(r.rows))
	if err != nil {
		t.Fatal(err)
	}
	two, err := r.Trace(2 * len(r.rows))
	if err != nil {
		t.Fatal(err)
	}
	if one.Name != "conversation-300" || one.Requests() != 300 || two.Requests() != 600 {
		t.Fatalf("%s: %d and %d requests", one.Name, one.Requests(), two.Requests())
	}
	first, second := filled(one, 0), filled(one, 1)
	if a := one.asks[0]; len(first.Tokens) != r.rows[0].Prompt || len(first.Hashes) != r.rows[0].Prompt/BlockTokens || a.answer.n != r.rows[0].Output {
		t.Errorf("request 0 has %d tokens, %d blocks, %d of output", len(first.Tokens), len(first.Hashes), a.answer.n)
	}
	shared := 0
	for shared < len(first.Hashes) && first.Hashes[shared] == second.Hashes[shared] {
		shared++
	}
	if want := bench.MooncakeBlock / BlockTokens; shared != want { // both begin with id 0 and differ after it
		t.Errorf("requests 0 and 1 share %d blocks, want %d", shared, want)
	}
	seen := map[kv.BlockHash]int{}
	for i := range two.asks {
		if i > 0 && two.asks[i].at < two.asks[i-1].at {
			t.Fatalf("request %d comes at %v, the one before at %v", i, two.asks[i].at, two.asks[i-1].at)
		}
		if i < 40 {
			seen[filled(two, i).Hashes[0]]++
		}
	}
	if len(seen) < 2 {
		t.Error("two copies have the same tokens")
	}
	if last := one.asks[299].at; math.Abs(last-299) > 1e-9 {
		t.Errorf("300 requests come within %v gaps", last)
	}
	if _, err := r.Trace(0); err == nil {
		t.Error("a trace of no requests")
	}
}

func TestRecordingsAreRefused(t *testing.T) {
	if _, err := OpenMooncake("none.jsonl"); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "fewshot") {
		t.Error(err)
	}
}

// TestHistogram checks that percentiles are within a hundredth of the exact ones.
func TestHistogram(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var h histogram
	var all []time.Duration
	for range 5000 {
		d := time.Duration(math.Exp(rng.Float64()*20) * 200)
		h.add(d)
		all = append(all, d)
	}
	for _, p := range []int{1, 50, 99, 100} {
		exact, got := bench.Percentile(all, p), h.percentile(p)
		if math.Abs(got-exact) > 0.01*exact {
			t.Errorf("percentile %d is %v, want %v", p, got, exact)
		}
	}
	for b := range 40 * 128 {
		if bucket(least(b)) != b && least(b) >= 128 {
			t.Fatalf("bucket %d begins at %v, which is in %d", b, least(b), bucket(least(b)))
		}
	}
}

func TestKinds(t *testing.T) {
	for _, want := range kinds.Values() {
		var k Kind
		if err := k.UnmarshalText([]byte(want.String())); err != nil || k != want {
			t.Errorf("%v: %v, %v", want, k, err)
		}
	}
	var k Kind
	if err := k.UnmarshalText([]byte("none")); err == nil || Kind(9).String() != "worker(9)" {
		t.Error("a worker of an unknown kind")
	}
}
