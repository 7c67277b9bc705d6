package drafts

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// best tries all numbers of guesses, the most probable first, and returns the highest rate.
func best(offers []Offer, step Step) float64 {
	var gains []float64
	for _, o := range offers {
		gains = append(gains, o.Gains...)
	}
	slices.Sort(gains)
	slices.Reverse(gains)
	most, sum := float64(step.Rows)/step.Seconds, 0.0
	for k, g := range gains[:min(len(gains), step.Most)] {
		sum += g
		most = max(most, (float64(step.Rows)+sum)/(step.Seconds+step.Lost+step.Draft*float64(k+1)))
	}
	return most
}

// TestChoose: the chosen guesses give the highest rate, or none is chosen because they gain less than
// the margin.
func TestChoose(t *testing.T) {
	chosen, none := 0, 0
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 7))
		step := Step{Rows: 1 + rng.IntN(20), Seconds: 1, Most: 1000}
		step.Draft = 2 * rng.Float64() / float64(step.Rows)
		if rng.IntN(3) == 0 {
			step.Lost = rng.Float64() / 4
		}
		offers := make([]Offer, rng.IntN(step.Rows+1))
		for i := range offers {
			p, rate := 1.0, rng.Float64()
			for range rng.IntN(30) {
				p *= rate
				offers[i].Gains = append(offers[i].Gains, p)
			}
			offers[i].Tokens = make([]kv.Token, len(offers[i].Gains))
		}
		taken := Choose(offers, step)
		sum, count := 0.0, 0
		for _, o := range offers {
			count += o.Take
			for _, g := range o.Gains[:o.Take] {
				sum += g
			}
		}
		if count != taken {
			t.Fatalf("seed %d: %d guesses are taken, Choose says %d", seed, count, taken)
		}
		base, want := float64(step.Rows), best(offers, step)
		if taken == 0 {
			none++
			if want > 1.001*margin*base && step.Lost == 0 {
				t.Fatalf("seed %d: nothing is taken, the rate could be %v instead of %v", seed, want, base)
			}
			continue
		}
		chosen++
		got := (base + sum) / (1 + step.Lost + step.Draft*float64(taken))
		if got < 0.995*want || got < margin*base {
			t.Fatalf("seed %d: the rate is %v, could be %v, and is %v without drafts", seed, got, want, base)
		}
	}
	if chosen < 300 || none < 300 {
		t.Errorf("%d steps with drafts, %d without", chosen, none)
	}
	offers := []Offer{{Gains: []float64{0.9, 0.8}}, {Gains: []float64{0.9}}}
	if Choose(offers, Step{Rows: 2, Seconds: 1, Draft: 0.01, Most: 2}) != 2 || offers[0].Take != 2 || offers[1].Take != 0 {
		t.Errorf("a step that can verify 2 guesses takes %d and %d", offers[0].Take, offers[1].Take)
	}
	if Choose(offers, Step{Rows: 2, Seconds: 1, Most: 2}) != 0 {
		t.Error("guesses are taken though their cost is unknown")
	}
}

// TestBalance: drafts that always lose cost a bounded part of the time; drafts that win never pause.
func TestBalance(t *testing.T) {
	var b Balance
	lost, steps := 0.0, 20_000
	for range steps {
		if b.Pauses() {
			continue
		}
		b.Settle(4, 1, 1, 1.75) // a quarter of a step is gained for three quarters
		lost += 0.5
	}
	if lost > 0.005*float64(steps) {
		t.Errorf("losing drafts cost %v of %d steps", lost, steps)
	}
	b = Balance{}
	for i := range 1000 {
		if b.Pauses() {
			t.Fatalf("winning drafts pause at step %d", i)
		}
		b.Settle(1, 3*(i%2), 1, 1.6)
	}
}
