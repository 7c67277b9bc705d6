package radixcache

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/coppice-llm/coppice/internal/invariants"
)

// worldOf returns one of the worlds in which a harness can run. Odd variants have tenants, and
// every second odd variant has WholeLeaves.
func worldOf(policy Policy, page, variant int) world {
	w := world{Config: Config{PageTokens: page, BlockTokens: page * (1 + variant%3), Events: variant%5 != 4, Policy: policy, SLRUHits: 1 + variant%3, WholeLeaves: variant%4 == 3}}
	if variant%2 == 1 {
		w.tenants, w.TTL, w.PinnedTokens = true, 60, 8*page
	}
	return w
}

// TestAgainstModel runs the fuzz tests with fixed seeds.
func TestAgainstModel(t *testing.T) {
	const variants = 6
	steps := 400
	if invariants.Enabled {
		steps = 100
	}
	var all everywhere
	for policy := range Policy(len(policies)) {
		t.Run(policy.String(), func(t *testing.T) {
			for _, page := range fuzzPages {
				for variant := range variants {
					rng := rand.New(rand.NewPCG(uint64(variant), 7))
					replay := fmt.Sprintf("page %d, variant %d, go test -run 'TestAgainstModel/%v'", page, variant, policy)
					h := newHarness(t, replay, worldOf(policy, page, variant), rng.IntN)
					for range steps {
						h.step()
					}
					all.add(h)
				}
			}
		})
	}
	if all.harnesses == variants*len(fuzzPages)*len(policies) && !invariants.Enabled { // not with -run
		all.check(t)
	}
}

// everywhere sums up the cases that harnesses have reached.
type everywhere struct {
	harnesses int
	seen      map[string]int
	stats     Stats
}

func (e *everywhere) add(h *harness) {
	if e.seen == nil {
		e.seen = map[string]int{}
	}
	e.harnesses++
	for name, n := range h.seen {
		e.seen[name] += n
	}
	s, sum := h.c.Stats(), &e.stats
	sum.Splits += s.Splits
	sum.Joins += s.Joins
	sum.ReturnedPages += s.ReturnedPages
	for r := range reasonCount {
		sum.EvictedPages[r] += s.EvictedPages[r]
	}
}

// check fails if some case was not reached: such a test proves nothing about it.
func (e *everywhere) check(t *testing.T) {
	s := e.stats
	reached := s.Splits > 0 && s.Joins > 0 && s.ReturnedPages > 0
	for r := range reasonCount {
		reached = reached && (s.EvictedPages[r] > 0 || r == ByDistrust || r == ByParking) // which have tests of their own
	}
	for _, name := range []string{
		"lossy join", "resume after a removal", "resume after growth", "freed by quota", "extend in a dead tree", "evict any",
		"expired", "pinned prefix", "unpinned prefix", "budget for prefixes used up", "flush with handles", "private space in a dead tree",
	} {
		reached = reached && e.seen[name] > 0
	}
	if !reached {
		t.Errorf("did not get everywhere: %v\n%v", e.seen, s)
	}
}

// fuzz runs a harness in which each byte makes one choice. Run fuzz targets with
// -fuzzminimizetime 10x: by default each new input is minimized for a minute.
func fuzz(t *testing.T, w world, data []byte) {
	data = data[:min(len(data), 4000)]
	h := newHarness(t, fmt.Sprintf("fuzz input, %+v", w), w, func(n int) int {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return int(b) % n
	})
	for len(data) > 0 {
		h.step()
	}
}

// addSeeds gives a target for each first byte some random choices.
func addSeeds(f *testing.F, firsts int) {
	rng := rand.New(rand.NewPCG(1, 2))
	for first := range firsts {
		seed := []byte{byte(first)}
		for range 600 {
			seed = append(seed, byte(rng.IntN(256)))
		}
		f.Add(seed)
	}
}

var fuzzPages = []int{1, 3, 4, 16}

// FuzzLRU: the default configuration at several page sizes.
func FuzzLRU(f *testing.F) {
	addSeeds(f, 8)
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		page := fuzzPages[data[0]%4]
		fuzz(t, world{Config: Config{PageTokens: page, BlockTokens: page * (1 + int(data[0]/4%3)), Events: true}}, data[1:])
	})
}

// FuzzPolicies: all policies, with and without whole leaves.
func FuzzPolicies(f *testing.F) {
	addSeeds(f, 2*len(policies))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		policy, rest := Policy(int(data[0])%len(policies)), int(data[0])/len(policies)
		fuzz(t, world{Config: Config{PageTokens: fuzzPages[rest%4], Policy: policy, WholeLeaves: rest/4%2 == 1}}, data[1:])
	})
}

// FuzzTenants: quotas, public prefixes, media, a TTL and pinned prefixes too,
// mostly under LRU.
func FuzzTenants(f *testing.F) {
	addSeeds(f, 16)
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		first := int(data[0])
		page := fuzzPages[first%4]
		w := world{tenants: true, Config: Config{PageTokens: page, BlockTokens: page * (1 + first/4%3), Events: true, TTL: 60, PinnedTokens: 8 * page}}
		if first/12%2 == 1 {
			w.Policy = Policy(first / 24 % len(policies))
		}
		fuzz(t, w, data[1:])
	})
}
