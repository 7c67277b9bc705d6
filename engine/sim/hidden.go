package sim

import (
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/splitmix"
	"github.com/coppice-llm/coppice/kv"
)

// hiddenSize is the length of a hidden state.
const hiddenSize = 16

const saltHidden = 0x68696464656e0000

// hidden fills out.Hidden for row r, which has run; after is the hash of the prefix up to the end of the
// row's own tokens. The hashes of earlier positions come from the row's pages.
func (d *device) hidden(r *engine.Row, after uint64, out *engine.RowOut) {
	switch r.Hidden {
	case engine.HiddenLast:
		out.Hidden = rounded(hiddenOf(after))
	case engine.HiddenSum:
		var sum [hiddenSize]float64
		for pos := range int(r.Start) + r.Own() {
			addHidden(&sum, d.pool.at(r.Pages, pos).hash)
		}
		out.Hidden = rounded(sum)
	}
}

// hiddenOf returns the hidden state after the prefix with this hash: uniform over [-1, 1), with 24 bits
// each, so that the f64 sum of many is exact.
func hiddenOf(hash uint64) (state [hiddenSize]float64) {
	for i := range state {
		h := splitmix.Mix(hash ^ saltHidden ^ uint64(i+1)*splitmix.Golden)
		state[i] = float64(int32(h>>32)>>8) * 0x1p-23
	}
	return state
}

func addHidden(sum *[hiddenSize]float64, hash uint64) {
	for i, v := range hiddenOf(hash) {
		sum[i] += v
	}
}

func rounded(state [hiddenSize]float64) []float32 {
	out := make([]float32, hiddenSize)
	for i, v := range state {
		out[i] = float32(v)
	}
	return out
}

// ExpectHidden returns the hidden state that a row for the end of prompt must get, whatever else runs.
// It computes the state from the tokens alone. Any goroutine may call ExpectHidden.
func (b *Backend) ExpectHidden(prompt []kv.Token, kind engine.Hidden) []float32 {
	hash, sum := b.pool.root, [hiddenSize]float64{}
	for _, t := range prompt {
		hash = extend(hash, t)
		addHidden(&sum, hash)
	}
	if kind == engine.HiddenSum {
		return rounded(sum)
	}
	return rounded(hiddenOf(hash))
}
