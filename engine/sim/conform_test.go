package sim

import (
	"os"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/enginetest"
	"github.com/coppice-llm/coppice/internal/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// slowProfile is a small model on a device whose steps take half a millisecond:
// long enough that a test's next call finds them pending.
func slowProfile(t testing.TB) Profile {
	p, err := ProfileByName("cpu2")
	if err != nil {
		t.Fatal(err)
	}
	p.Name = "slow"
	p.Eff.Step = 500e-6
	p.Model.LinearParams, p.Model.Params, p.Model.Vocab = 1e5, 1e6, 128
	p.Device.Flops, p.Device.BW = 1e12, 1e12
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	return p
}

func conform(cfg Config) enginetest.Factory {
	return func(t testing.TB, o enginetest.Options) engine.Backend {
		c := cfg
		c.Profile = slowProfile(t)
		c.PageTokens, c.Pages, c.MaxSlots, c.MaxRows = o.PageTokens, o.Pages, o.MaxSlots, o.MaxRows
		c.MaxTokens, c.MaxInflight = o.MaxTokens, o.MaxInflight
		b, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

// TestConformance and TestControls hold the backend to every promise.
func TestConformance(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, conform(Config{Logits: true}))
}

func TestControls(t *testing.T) {
	t.Parallel()
	enginetest.RunControls(t, conform(Config{Logits: true}))
}

// TestConformanceWithoutLogits and its controls run the suite in the mode without logits, for the
// promises that its Info makes: neither penalties nor log-probabilities.
func TestConformanceWithoutLogits(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, conform(Config{}))
}

func TestControlsWithoutLogits(t *testing.T) {
	t.Parallel()
	enginetest.RunControls(t, conform(Config{}))
}

// TestConformanceUnsanitized runs the suite in the modes Boundary and Off, except check row-error:
// these modes do not notice a NaN page in the middle of a context, which row-error plants.
func TestConformanceUnsanitized(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{Boundary, Off} {
		t.Run(mode.String(), func(t *testing.T) {
			enginetest.Run(t, conform(Config{Logits: true, Sanitize: mode}), "row-error")
		})
	}
}
