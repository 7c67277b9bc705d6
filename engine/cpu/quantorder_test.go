package cpu

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/gguf/writer"
)

// Packing in the order of groups gives the bytes of the order of blocks, moved: also where the last blocks are
// fewer than eight. And moving them back gives the order of blocks.
func TestQuantOrders(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 34))
	for _, typ := range quantTypes() {
		k := 2*superBlocks*quantBlock + 3*quantBlock
		if typ.BlockValues() > quantBlock {
			k = 2 * superBlocks * quantBlock
		}
		const n = vectorCols
		weights := make([]float32, n*k)
		for i := range weights {
			weights[i] = float32(rng.NormFloat64())
		}
		tensor := &model.Tensor{Name: "w", Shape: []int{n, k}, Quant: typ, Data: make([]byte, typ.Bytes(n*k))}
		writer.Quantize(typ, tensor.Data, weights)
		var panels [2]quantPanel
		for order := range panels {
			m := &matrix{n: n, k: k}
			if err := packQuant(m, quantOrder(order), quantFormats(k, []*model.Tensor{tensor}), []*model.Tensor{tensor}); err != nil {
				t.Fatal(err)
			}
			defer m.store.Close()
			panels[order] = m.quant[0]
		}
		plain, grouped := panels[byBlocks], panels[byGroups]
		if got := plain.reordered(byGroups); !bytes.Equal(got.data, grouped.data) {
			t.Errorf("%v: the order of groups has other bytes", typ)
		}
		if got := grouped.reordered(byBlocks); !bytes.Equal(got.data, plain.data) {
			t.Errorf("%v: the way back gives other bytes", typ)
		}
		if bytes.Equal(plain.data, grouped.data) {
			t.Errorf("%v: both orders are the same", typ)
		}
		// Columns [8, 16) of block 0 follow the eight blocks of columns [0, 8).
		f := grouped.format
		if head, weights := grouped.place(8, 0); head != f.blockBytes() || weights != f.blockBytes()+f.headBytes()/8 {
			t.Errorf("%v: column 8 is at %d and %d of a block of %d", typ, head, weights, f.blockBytes())
		}
	}
}
