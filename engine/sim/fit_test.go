package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// fitSamples returns steps with the times that p predicts, each off by a random share of up to
// noise, in shuffled order.
func fitSamples(p Profile, noise float64) []Sample {
	var samples []Sample
	add := func(shapes ...RowShape) { samples = append(samples, Sample{Shapes: shapes}) }
	for n := 1; n <= 512; n *= 2 {
		for _, c := range []int{0, 256, 1024, 2048} {
			add(RowShape{1, n, c, true})
			add(RowShape{1, n, c, false})
		}
	}
	for b := 2; b <= 16; b *= 2 {
		for _, c := range []int{16, 256, 1024, 2048} {
			add(RowShape{b, 1, c, true})
			add(RowShape{b, 1, c, false})
		}
		add(RowShape{b, 1, 512, true}, RowShape{1, 64, 1024, false})
	}
	rng := rand.New(rand.NewPCG(3, 4))
	rng.Shuffle(len(samples), func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
	for i := range samples {
		b := samples[i].batch(make([]kv.Token, 512))
		samples[i].Nanos = int64(math.Round(float64(p.Step(&b, 0)) * (1 + noise*(2*rng.Float64()-1))))
	}
	return samples
}

// off returns p with each fitted figure divided by the factor by. With turns, every second figure
// is multiplied by it instead, up to the figure's bound.
func off(p Profile, by float64, turns bool) Profile {
	for i, f := range fitFields {
		v := f.of(&p.Eff)
		if turns && i%2 == 1 {
			*v = min(*v*by, f.hi)
		} else {
			*v /= by
		}
	}
	return p
}

func TestFitNoise(t *testing.T) {
	for _, truth := range profiles(t) {
		for _, turns := range []bool{false, true} {
			samples := fitSamples(truth, 0.05)
			p, report, err := Fit(off(truth, 3, turns), samples)
			if err != nil {
				t.Fatal(err)
			}
			if report.HeldOutMAPE > 0.08 || report.TrainMAPE > 0.05 {
				t.Errorf("%s: MAPE %.3f, held out %.3f, %+v", truth.Name, report.TrainMAPE, report.HeldOutMAPE, p.Eff)
			}
			if report.HeldOutMAPE < 0.01 {
				t.Errorf("%s: MAPE of %.4f held out where the noise is 5 %%", truth.Name, report.HeldOutMAPE)
			}
			if report.Train+report.HeldOut != len(samples) || report.HeldOut != len(samples)/3 {
				t.Errorf("%d samples are %d and %d", len(samples), report.Train, report.HeldOut)
			}
		}
	}
}

// memoryBound returns a profile in which reading the weights takes most of the time of a step of
// few tokens.
func memoryBound(t *testing.T) Profile {
	p, err := ProfileByName("cpu2")
	if err != nil {
		t.Fatal(err)
	}
	p.Eff.NHalf = 0.5
	return p
}

// Without noise, Fit recovers the figures that the time of some step depends on.
func TestFitRecovers(t *testing.T) {
	truth := memoryBound(t)
	for _, by := range []float64{3, 1.0 / 3} {
		for _, turns := range []bool{false, true} {
			base := off(truth, by, turns)
			if base.Validate() != nil { // a share above 1
				base = off(truth, 3, turns)
			}
			p, report, err := Fit(base, fitSamples(truth, 0))
			if err != nil {
				t.Fatal(err)
			}
			if report.HeldOutMAPE > 0.002 {
				t.Errorf("held out %.4f: %+v", report.HeldOutMAPE, report)
			}
			for i, f := range fitFields {
				got, want := *f.of(&p.Eff), *f.of(&truth.Eff)
				if !slices.Contains(report.Undetermined, fitFields[i].name) && math.Abs(got/want-1) > 0.1 {
					t.Errorf("%s is %v, want %v", f.name, got, want)
				}
			}
			if slices.Contains(report.Undetermined, "e_w") || slices.Contains(report.Undetermined, "e_f") || slices.Contains(report.Undetermined, "e_d") {
				t.Errorf("undetermined: %v", report.Undetermined)
			}
			if p.Model != truth.Model || p.Device != truth.Device || p.Eff.Host0 != truth.Eff.Host0 || p.Eff.Host1 != truth.Eff.Host1 || p.Eff.PCIe != truth.Eff.PCIe {
				t.Errorf("more than the fitted figures changed: %+v", p)
			}
		}
	}
}

// A device that is 1.8 times as fast as its data sheet says needs a share above 1. Fit returns 1
// and lists the figure in AtBound.
func TestFitAtBound(t *testing.T) {
	truth := memoryBound(t)
	fast := truth
	fast.Device.BW *= 1.8
	p, report, err := Fit(truth, fitSamples(fast, 0))
	if err != nil {
		t.Fatal(err)
	}
	if p.Eff.Weights != 1 || !slices.Contains(report.AtBound, "e_w") {
		t.Errorf("e_w %v, at bound %v", p.Eff.Weights, report.AtBound)
	}
	again, _, _ := Fit(truth, fitSamples(fast, 0))
	if again != p {
		t.Errorf("two fits of the same differ: %+v, %+v", again, p)
	}
}

// Worst is the sample whose time is wrong by a factor of 10.
func TestFitWorst(t *testing.T) {
	truth, err := ProfileByName("cpu2")
	if err != nil {
		t.Fatal(err)
	}
	samples := fitSamples(truth, 0)
	samples[2].Nanos /= 10 // held out
	_, report, err := Fit(truth, samples)
	if err != nil {
		t.Fatal(err)
	}
	if report.Worst.Nanos != samples[2].Nanos || math.Abs(report.WorstError-9) > 0.1 || report.TrainMAPE > 0.001 {
		t.Errorf("%+v", report)
	}
}

// Fit ends, and returns a valid profile, for times that no profile explains: those of a slow
// interpreter of tiny steps, and random ones, as on a machine that does something else too.
func TestFitOfWildTimes(t *testing.T) {
	tiny, err := ProfileByName("h100")
	if err != nil {
		t.Fatal(err)
	}
	tiny.Model = Model{Name: "tiny", Params: 71680, LinearParams: 30720, Layers: 1, Hidden: 64, Heads: 4, KVHeads: 2, HeadDim: 16, Vocab: 320, MaxPositions: 256, WeightBytes: 2, KVBytes: 2}
	for seed := range uint64(36) {
		rng := rand.New(rand.NewPCG(seed, 5))
		samples := fitSamples(tiny, 0)
		for i := range samples {
			s := &samples[i]
			switch seed % 3 {
			case 0:
				s.Nanos = int64(float64(3e6+6e5*s.Shapes[0].Rows*s.Shapes[0].New) * math.Exp(0.5*rng.NormFloat64()))
			case 1:
				s.Nanos = int64(math.Exp(1 + 22*rng.Float64()))
			case 2:
				s.Nanos = 1 + int64(float64(s.Nanos)*math.Exp(2*rng.NormFloat64()))
			}
		}
		if _, _, err := Fit(tiny, samples); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

func TestFitRefuses(t *testing.T) {
	truth, err := ProfileByName("cpu2")
	if err != nil {
		t.Fatal(err)
	}
	good := fitSamples(truth, 0)
	broken := truth
	broken.Eff.Weights = 2
	with := func(change func(*Sample)) []Sample {
		s := slices.Clone(good)
		s[5].Shapes = slices.Clone(s[5].Shapes)
		change(&s[5])
		return s
	}
	for _, c := range []struct {
		name    string
		base    Profile
		samples []Sample
		want    string
	}{
		{"zero base", Profile{}, good, "zero profile"},
		{"broken base", broken, good, "eff.e_w"},
		{"no samples", truth, nil, "0 samples, want at least 30"},
		{"one too few", truth, good[:MinFitSamples-1], "29 samples"},
		{"no time", truth, with(func(s *Sample) { s.Nanos = 0 }), "sample 5 takes 0 ns"},
		{"negative time", truth, with(func(s *Sample) { s.Nanos = -1 }), "sample 5 takes -1 ns"},
		{"no rows", truth, with(func(s *Sample) { s.Shapes = nil }), "sample 5 has no rows"},
		{"no tokens", truth, with(func(s *Sample) { s.Shapes[0].New = 0 }), "0 tokens"},
		{"rows", truth, with(func(s *Sample) { s.Shapes[0].Rows = maxShapeRows + 1 }), "4097 rows"},
		{"negative context", truth, with(func(s *Sample) { s.Shapes[0].Cached = -1 }), "after -1"},
	} {
		if _, _, err := Fit(c.base, c.samples); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if _, _, err := Fit(truth, good[:MinFitSamples]); err != nil {
		t.Errorf("the least number of samples: %v", err)
	}
}
