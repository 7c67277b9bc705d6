package cuda

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/internal/f32"
	"github.com/coppice-llm/coppice/kv"
)

// rounding is a set of values that are rounded to bf16.
type rounding int

const (
	roundMatrices rounding = 1 << iota
	roundHead
	roundKV
	roundNormed
	roundQueries
	roundProbabilities
	roundAttention
	roundSwiGLU
	roundVectors // norm weights and biases
	roundEmbedding

	roundings     = iota
	backendRounds = roundVectors - 1
)

var roundingNames = [roundings]string{"weight matrices", "head", "K and V", "normed activations", "queries", "attention weights", "attention output",
	"SwiGLU output", "(norm weights and biases)", "(embedding)"}

// emulation computes logits in f64, with chosen values rounded to bf16.
type emulation struct {
	m      *model.Model
	rounds rounding
}

func (e *emulation) round(x []float64, as rounding) []float64 {
	if e.rounds&as != 0 {
		for i := range x {
			x[i] = float64(f32.FromBF16(f32.ToBF16(float32(x[i]))))
		}
	}
	return x
}

// values returns a tensor's values, nil if t is nil.
func (e *emulation) values(t *model.Tensor, as rounding) []float64 {
	if t == nil {
		return nil
	}
	wide := make([]float32, t.Len())
	t.Widen(wide, 0, t.Len())
	x := make([]float64, t.Len())
	for i := range x {
		x[i] = float64(wide[i])
	}
	return e.round(x, as)
}

// norm returns RMSNorm of each piece of x that is as long as the weight.
func (e *emulation) norm(x []float64, weight *model.Tensor) (y []float64) {
	for w := e.values(weight, roundVectors); len(x) > 0; x = x[len(w):] {
		sum := 0.0
		for _, a := range x[:len(w)] {
			sum += a * a
		}
		for i := range w {
			y = append(y, x[i]/math.Sqrt(sum/float64(len(w))+e.m.Config().NormEps)*w[i])
		}
	}
	return y
}

// product returns w·x + bias.
func (e *emulation) product(w *model.Tensor, as rounding, x []float64, bias *model.Tensor) []float64 {
	out, weights, add := make([]float64, w.Len()/len(x)), e.values(w, as), e.values(bias, roundVectors)
	for r := range out {
		for i, a := range x {
			out[r] += a * weights[r*len(x)+i]
		}
		if add != nil {
			out[r] += add[r]
		}
	}
	return out
}

// rotate applies the rotary embedding of position p to all heads.
func rotate(x []float64, freq []float32, p int) {
	half := len(freq)
	for h := 0; h < len(x); h += 2 * half {
		for i, f := range freq {
			s, c := math.Sincos(float64(float32(p) * f))
			a, b := x[h+i], x[h+i+half]
			x[h+i], x[h+i+half] = a*c-b*s, b*c+a*s
		}
	}
}

// attend returns the attention of the last position of k and v.
func (e *emulation) attend(q []float64, k, v [][]float64) []float64 {
	c := e.m.Config()
	out := make([]float64, c.Heads*c.HeadDim)
	for h := range c.Heads {
		at, from := h*c.HeadDim, h/(c.Heads/c.KVHeads)*c.HeadDim
		scores, top, sum := make([]float64, len(k)), math.Inf(-1), 0.0
		for p := range scores {
			for d := range c.HeadDim {
				scores[p] += q[at+d] * k[p][from+d] / math.Sqrt(float64(c.HeadDim))
			}
			top = max(top, scores[p])
		}
		for p := range scores {
			scores[p] = math.Exp(scores[p] - top)
			sum += scores[p]
		}
		for p, w := range e.round(scores, roundProbabilities) {
			for d := range c.HeadDim {
				out[at+d] += w * v[p][from+d] / sum
			}
		}
	}
	return e.round(out, roundAttention)
}

// logits returns the logits after the last token.
func (e *emulation) logits(tokens []kv.Token) []float64 {
	c := e.m.Config()
	embed, freq := e.values(e.m.Embed(), roundEmbedding), c.RopeFrequencies()
	var x [][]float64
	for _, id := range tokens {
		x = append(x, append([]float64(nil), embed[int(id)*c.Hidden:][:c.Hidden]...))
	}
	add := func(x, y []float64) {
		for i := range x {
			x[i] += y[i]
		}
	}
	for i := range e.m.Layers() {
		l := &e.m.Layers()[i]
		var k, v [][]float64
		for p := range x {
			h := e.round(e.norm(x[p], l.AttnNorm), roundNormed)
			q, key := e.product(l.Q, roundMatrices, h, l.QBias), e.product(l.K, roundMatrices, h, l.KBias)
			if c.QKNorm {
				q, key = e.norm(q, l.QNorm), e.norm(key, l.KNorm)
			}
			rotate(q, freq, p)
			rotate(key, freq, p)
			k, v = append(k, e.round(key, roundKV)), append(v, e.round(e.product(l.V, roundMatrices, h, l.VBias), roundKV))
			add(x[p], e.product(l.O, roundMatrices, e.attend(e.round(q, roundQueries), k, v), l.OBias))
			h = e.round(e.norm(x[p], l.FFNNorm), roundNormed)
			g, u := e.product(l.Gate, roundMatrices, h, l.GateBias), e.product(l.Up, roundMatrices, h, l.UpBias)
			for j := range g {
				g[j] *= u[j] / (1 + math.Exp(-g[j]))
			}
			add(x[p], e.product(l.Down, roundMatrices, e.round(g, roundSwiGLU), l.DownBias))
		}
	}
	return e.product(e.m.Head(), roundHead, e.round(e.norm(x[len(x)-1], e.m.Norm()), roundNormed), nil)
}

// TestRoundings checks in an emulation what the backend must not round to bf16: with its
// roundings the logits are within 2e-2 of the goldens; with norm weights, biases and embedding
// rounded too, they are not, for the two prompts that are most sensitive to it. With -v it prints
// the distance that each rounding causes alone, and that of all others of the backend.
func TestRoundings(t *testing.T) {
	if raceDetector {
		t.Skip("one goroutine, ten times slower")
	}
	text, err := os.ReadFile(filepath.Join(goldenDir, "expected.json"))
	var g golden
	if err == nil {
		err = json.Unmarshal(text, &g)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, gm := range g.Models {
		if gm.Name != "llama3-tied-f32" && gm.Name != "llama-d80-f16" {
			continue
		}
		m := openGolden(t, gm.Name, false)
		for _, p := range gm.Prompts {
			if len(p.Tokens) != 70 {
				continue
			}
			with := func(r rounding) float64 { return relative((&emulation{m, r}).logits(p.Tokens), p.Logits) }
			none, backend, all := with(0), with(backendRounds), with(1<<roundings-1)
			t.Logf("%s, %d tokens: %.2g with no rounding, %.3g with those of the backend, %.3g with all", gm.Name, len(p.Tokens), none, backend, all)
			if none > 1e-5 || backend > 2e-2 || all <= 2e-2 {
				t.Errorf("%s: want at most 1e-5, at most 2e-2, and more", gm.Name)
			}
			for i := range roundings {
				if testing.Verbose() {
					t.Logf("%s: %.3g alone, all others of the backend %.3g", roundingNames[i], with(1<<i), with(backendRounds&^(1<<i)))
				}
			}
		}
	}
}
