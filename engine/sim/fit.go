package sim

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// RowShape describes equal rows of a measured step: each runs New tokens after Cached ones.
type RowShape struct {
	Rows   int  `json:"rows"`
	New    int  `json:"new"`    // tokens per row, 1 for a decode
	Cached int  `json:"cached"` // tokens per row
	Sample bool `json:"sample"` // each row samples a token
}

// Sample is a measured step without page copies: its rows and its time.
type Sample struct {
	Shapes []RowShape `json:"shapes"`
	Nanos  int64      `json:"nanos"`
}

// Predict returns the time of the step of s under p, see [Profile.Step].
func (s *Sample) Predict(p *Profile) time.Duration {
	b := s.batch(make([]kv.Token, longestRow([]Sample{*s})))
	return p.Step(&b, 0)
}

// Limits of a sample: large enough for any device, and small enough to avoid overflow.
const (
	maxShapeRows   = 1 << 12
	maxShapeTokens = 1 << 22
)

// MinFitSamples is the least number of samples for [Fit]: 20 to fit its 9 figures, and 10 held
// out to test them.
const MinFitSamples = 30

// FitReport holds the errors of a fitted profile on the samples that it was fitted to, and on
// held-out ones.
type FitReport struct {
	Train       int     `json:"train"`         // number of samples that the profile was fitted to
	HeldOut     int     `json:"held_out"`      // number of held-out samples
	TrainMAPE   float64 `json:"train_mape"`    // mean of |predicted-measured|/measured; 0.1 is 10 %
	HeldOutMAPE float64 `json:"held_out_mape"` // the same mean over the held-out samples
	Worst       Sample  `json:"worst"`         // the sample with the largest |predicted-measured|/measured, of all samples
	WorstNanos  int64   `json:"worst_predicted_nanos"`
	WorstError  float64 `json:"worst_error"`
	// AtBound names the figures, such as "e_w", that would fit better outside their bounds. If a
	// share is 1 and listed here, the device exceeds its BW or Flops, for instance because the
	// model fits into a cache.
	AtBound []string `json:"at_bound"`
	// Undetermined names the figures that could be a fifth larger, or a fifth smaller, without a
	// visible effect on any sample that the profile was fitted to. Such a figure says nothing
	// about the device, or is only a limit of its true value.
	Undetermined []string `json:"undetermined"`
}

// HeldOutSample reports whether [Fit] holds out sample i: it holds out samples 2, 5, 8 and so on.
// So the order of the samples should not depend on their shapes.
func HeldOutSample(i int) bool { return i%3 == 2 }

// Fit returns base with the efficiencies that fit the samples best: e_w, e_f, n_half, e_a, e_k,
// e_d, e_s, r0 and t0. It leaves the model, the device, e_p, h0 and h1 as they are in base. Fit
// minimises the mean square of ln(predicted/measured) over two thirds of the samples; the same
// input gives the same result. The error names all faults of the input: a zero or invalid base,
// fewer than [MinFitSamples] samples, times or sizes that are not positive. Fit takes about a
// tenth of a second for 100 samples.
func Fit(base Profile, samples []Sample) (Profile, FitReport, error) {
	if err := validateFit(&base, samples); err != nil {
		return Profile{}, FitReport{}, err
	}
	batches := make([]engine.Batch, len(samples))
	tokens := make([]kv.Token, longestRow(samples))
	var train []point
	for i := range samples {
		batches[i] = samples[i].batch(tokens)
		if !HeldOutSample(i) {
			train = append(train, point{&batches[i], math.Log(float64(samples[i].Nanos) / 1e9)})
		}
	}
	f := newFitting(base, train)
	x := f.solve()
	fitted := f.profile(x)
	report := judge(&fitted, samples, batches)
	report.AtBound, report.Undetermined = f.atBound(x), f.undetermined(x)
	return fitted, report, fitted.Validate()
}

func validateFit(base *Profile, samples []Sample) error {
	var errs []error
	if base.free() {
		errs = append(errs, errors.New("sim: fit: the base is the zero profile, want the model and the device filled in"))
	} else if err := base.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("sim: fit: the base: %w", err))
	}
	if len(samples) < MinFitSamples {
		errs = append(errs, fmt.Errorf("sim: fit: %d samples, want at least %d", len(samples), MinFitSamples))
	}
	for i, s := range samples {
		if s.Nanos <= 0 {
			errs = append(errs, fmt.Errorf("sim: fit: sample %d takes %d ns, want a positive time", i, s.Nanos))
		}
		if len(s.Shapes) == 0 {
			errs = append(errs, fmt.Errorf("sim: fit: sample %d has no rows, want one at least", i))
		}
		for _, r := range s.Shapes {
			if r.Rows < 1 || r.Rows > maxShapeRows || r.New < 1 || r.New > maxShapeTokens || r.Cached < 0 || r.Cached > maxShapeTokens {
				errs = append(errs, fmt.Errorf("sim: fit: sample %d has %d rows of %d tokens after %d, want 1 to %d rows, 1 to %d tokens and 0 to %d before them",
					i, r.Rows, r.New, r.Cached, maxShapeRows, maxShapeTokens, maxShapeTokens))
			}
		}
	}
	return errors.Join(errs...)
}

// longestRow returns the largest number of new tokens that a row of the samples has.
func longestRow(samples []Sample) int {
	longest := 0
	for _, s := range samples {
		for _, r := range s.Shapes {
			longest = max(longest, r.New)
		}
	}
	return longest
}

// batch returns a batch with the rows of s. All rows use the first of tokens, whose values do not
// matter; there must be at least as many tokens as the longest row has.
func (s *Sample) batch(tokens []kv.Token) engine.Batch {
	var b engine.Batch
	for _, r := range s.Shapes {
		for range r.Rows {
			b.Rows = append(b.Rows, engine.Row{Start: int32(r.Cached), Tokens: tokens[:r.New], Sample: r.Sample})
		}
	}
	return b
}

func judge(p *Profile, samples []Sample, batches []engine.Batch) FitReport {
	r := FitReport{WorstError: -1}
	for i, s := range samples {
		predicted := p.Step(&batches[i], 0).Nanoseconds()
		off := math.Abs(float64(predicted-s.Nanos)) / float64(s.Nanos)
		if HeldOutSample(i) {
			r.HeldOut++
			r.HeldOutMAPE += off
		} else {
			r.Train++
			r.TrainMAPE += off
		}
		if off > r.WorstError {
			r.Worst, r.WorstNanos, r.WorstError = s, predicted, off
		}
	}
	r.HeldOutMAPE /= float64(r.HeldOut)
	r.TrainMAPE /= float64(r.Train)
	return r
}
