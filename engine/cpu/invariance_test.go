package cpu

import (
	"os"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/enginetest"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/kv"
)

// TestConformanceOfModels runs the suite over each architecture, biases, tied heads, all types
// of weights and odd shapes. The backends that a check compares differ in the number of
// threads and, unless COPPICE_CPU forces one, in the path.
func TestConformanceOfModels(t *testing.T) {
	g := readGolden(t)
	for _, name := range []string{
		"llama-bias-f16", "llama-d80-f16", "llama3-tied-f32", "mistral-d128-bf16",
		"qwen2-d32-f32", "qwen2-d128-f16", "qwen3-d96-bf16", "qwen3-d128-bf16",
	} {
		t.Run(name, func(t *testing.T) {
			m := openModel(t, g.model(t, name).dir(t))
			// These checks test sampling and the contract, which depend on no model.
			// TestConformance runs them.
			enginetest.Run(t, varied(m), "seed", "penalties", "mask", "bias", "logprobs", "validation", "busy", "close", "stats")
		})
	}
}

// openModel opens the model in dir for the test.
func openModel(t testing.TB, dir string) *model.Model {
	t.Helper()
	m, err := model.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// varied makes each backend with a different number of threads than the one before, and on a
// different path unless the environment forces one.
func varied(m *model.Model) enginetest.Factory { return variedWith(m, kv.F32) }

// variedWith is varied with KV of a type.
func variedWith(m *model.Model, kind kv.DType) enginetest.Factory {
	n, isas := 0, ownISAs()
	if m.Embed().Quantized() || m.Layers()[0].Gate.Quantized() {
		isas = ISAs()
	}
	if underRace && len(isas) > 1 {
		isas = isas[1:]
	}
	return func(t testing.TB, o enginetest.Options) engine.Backend {
		n++
		cfg := suiteConfig(o, 1+n%2)
		cfg.KVType = kind
		if os.Getenv(ISAVariable) == "" {
			cfg.ISA = isas[n%len(isas)]
		}
		return openSuite(t, m, cfg)
	}
}

// TestPlantedOrdersAreCaught runs the suite over kernels with a planted fault: their order of
// summation depends on a property that the suite varies.
func TestPlantedOrdersAreCaught(t *testing.T) {
	for _, weights := range []string{"mistral-d128-bf16", "qwen2-d32-f32"} {
		m := openModel(t, readGolden(t).model(t, weights).dir(t))
		eachOwnVector(t, func(t *testing.T, ops *kernels) {
			for _, c := range []struct {
				what   string
				ops    *kernels
				checks []string
			}{
				{"sums otherwise with one row", lastFirst(ops, 1), []string{"batch-mix", "chunking"}},
				{"sums otherwise by pages", valuesLastFirst(ops), []string{"page-size"}},
			} {
				planted := func(t testing.TB, o enginetest.Options) engine.Backend {
					cfg := suiteConfig(o, 2)
					cfg.ISA = ops.isa
					b := openSuite(t, m, cfg)
					b.step.ops = c.ops
					return b
				}
				for _, check := range c.checks {
					if enginetest.Try(t, planted, check) == nil {
						t.Errorf("%s: check %q passes a backend that %s", weights, check, c.what)
					}
				}
			}
		})
	}
}
