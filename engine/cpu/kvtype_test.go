package cpu

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/enginetest"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/internal/f32"
	"github.com/coppice-llm/coppice/kv"
)

// The conformance suite passes for every type of KV, on any path.
func TestConformanceOfKVTypes(t *testing.T) {
	for i, kind := range kvTypes[1:] {
		t.Run(kind.String(), func(t *testing.T) {
			m := openModel(t, readGolden(t).model(t, []string{"qwen2-d32-f32", "qwen3-d96-bf16", "mistral-d128-bf16"}[i]).dir(t))
			enginetest.Run(t, variedWith(m, kind), "seed", "penalties", "mask", "bias", "logprobs", "validation", "busy", "close", "stats")
		})
	}
}

// TestKVTypesAreClose checks that rounding K and V changes the logits, and no more than the
// type's precision explains.
func TestKVTypesAreClose(t *testing.T) {
	for _, name := range []string{"llama3-tied-f32", "qwen2-d32-f32", "qwen3-d128-bf16"} {
		m := openModel(t, readGolden(t).model(t, name).dir(t))
		if checkKVType(kv.Q8_0, m.Config().HeadDim) != nil {
			t.Fatalf("%s has heads of %d", name, m.Config().HeadDim)
		}
		exact := logitsWith(t, m, kv.F32)
		// Errors of normal values: f16 2^-12.5, bf16 2^-9.5, q8_0 36 times that of f16.
		for kind, limit := range map[kv.DType]float64{kv.F16: 1e-3, kv.BF16: 8e-3, kv.Q8_0: 36e-3} {
			off := distance(logitsWith(t, m, kind), exact)
			if !(off < limit) || off == 0 {
				t.Errorf("%s with KV in %v: off by %.2g, want at most %.2g and not 0", name, kind, off, limit)
			}
			t.Logf("%s with KV in %v: rel-L2 %.2g", name, kind, off)
		}
	}
}

// logitsWith returns the logits after 40 tokens of a fixed prompt.
func logitsWith(t *testing.T, m *model.Model, kind kv.DType) []float32 {
	b := openTest(t, m, Config{KVTokens: 64, KVType: kind, Threads: 1})
	wait(t, b, &engine.Batch{Seq: 1, Binds: []engine.SlotBind{{}}, Rows: []engine.Row{{
		Tokens: randomTokens(7, 40, m.Config().Vocab), Pages: pageRange(0, 3), Sample: true, PromptLogprobs: true}}})
	return b.step.kept[0].logits
}

func distance(got, want []float32) float64 {
	var diff, power float64
	for i, v := range want {
		d := float64(got[i]) - float64(v)
		diff, power = diff+d*d, power+float64(v)*float64(v)
	}
	return math.Sqrt(diff / power)
}

// TestQ8Blocks checks that an element's error is at most half a step plus the rounding of the
// scale, that zero blocks stay zero, and that blocks with values that are not finite do not
// become finite.
func TestQ8Blocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1730))
	row, x, got := make([]byte, kv.Q8_0.Size(64)), make([]float32, 64), make([]float32, 64)
	for range 2000 {
		size := math.Exp(8 * rng.NormFloat64())
		for i := range x {
			x[i] = float32(size * rng.NormFloat64())
		}
		clear(x[32:])
		encodeRow(kv.Q8_0, row, x)
		decodeRow(kv.Q8_0, got, row)
		top := 0.0
		for _, v := range x {
			top = max(top, math.Abs(float64(v)))
		}
		if top/127 < 1.0/(1<<14) || top/127 > 65504 {
			continue // the scale is subnormal, or infinite
		}
		for i, v := range x {
			if d := math.Abs(float64(got[i]) - float64(v)); d > top/127*(0.5+127.0/2048) {
				t.Fatalf("%g became %g, the largest is %g", v, got[i], top)
			}
		}
	}
	for _, v := range []float32{float32(math.NaN()), float32(math.Inf(-1)), 1e30} {
		clear(x)
		x[40] = v
		encodeRow(kv.Q8_0, row, x)
		decodeRow(kv.Q8_0, got, row)
		if got[40]-got[40] == 0 || got[0] != 0 {
			t.Errorf("a block with %g became %g and the one before %g", v, got[40], got[0])
		}
	}
}

func TestKVTypesRefused(t *testing.T) {
	m := testModel(t, random.Nano)
	for kind, want := range map[kv.DType]string{kv.FP8: "KVType is fp8, want one of [f32 f16 bf16 q8_0]", kv.Q8_0: "use f16 or bf16"} {
		if b, err := Open(m, Config{Pages: 4, KVType: kind}); err == nil || !strings.Contains(err.Error(), want) {
			if err == nil {
				b.Close()
			}
			t.Errorf("KV in %v: %v, want %q", kind, err, want)
		}
	}
	b := openTest(t, m, Config{Pages: 4, KVType: kv.BF16})
	f32 := openTest(t, m, Config{Pages: 4})
	if got, whole := b.Info(), f32.Info(); got.KVType != kv.BF16 || 2*got.PageBytes != whole.PageBytes || got.ModelID == whole.ModelID {
		t.Errorf("with KV in bf16: %+v", got)
	}
}

// TestNarrowF16 checks that each path rounds as ToF16 does: at every binary16 value, halfway
// between neighbours, next to both, and for random bits.
func TestNarrowF16(t *testing.T) {
	r := rand.New(rand.NewPCG(18, 1))
	var x []float32
	for h := range 1 << 16 {
		at := math.Float32bits(f32.FromF16(uint16(h)))
		for _, d := range []uint32{0, 1, 1<<32 - 1, 1 << 12, 1<<12 + 1, 1<<12 - 1} {
			x = append(x, math.Float32frombits(at+d))
		}
		x = append(x, math.Float32frombits(r.Uint32()), float32(math.Ldexp(r.NormFloat64(), -25)))
	}
	want := make([]byte, 2*len(x))
	encodeRow(kv.F16, want, x)
	for _, isa := range ISAs() {
		got := make([]byte, len(want))
		kernelsOf(isa).narrow(kv.F16, got, x)
		for i, v := range x {
			a, b := binary.NativeEndian.Uint16(got[2*i:]), binary.NativeEndian.Uint16(want[2*i:])
			if a != b && (v == v || f32.FromF16(a) == f32.FromF16(a)) {
				t.Fatalf("%s: %x becomes %#04x, want %#04x", isa, v, a, b)
			}
		}
	}
}
