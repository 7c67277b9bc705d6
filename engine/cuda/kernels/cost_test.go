package kernels_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/cuda/kernels"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
)

var rewrite = flag.Bool("rewrite", false, "write the tables of docs/gpu.md")

// of returns the cost of a kernel that has one purpose.
func of(t *testing.T, costs []kernels.Cost, kernel string) kernels.Cost {
	t.Helper()
	for _, c := range costs {
		if c.Kernel == kernel {
			return c
		}
	}
	t.Fatalf("no cost of %s", kernel)
	return kernels.Cost{}
}

// TestCost checks that the interpreter counts the bytes that Cost computes, for one layer of a small
// shape: loaded weights, KV and rows, and written results.
func TestCost(t *testing.T) {
	same := func(what string, got, want int64) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d bytes, the cost says %d", what, got, want)
		}
	}
	for i, rows := range []int{3, 20, 64, 130, 5, 33} {
		p, stored, kind := newProduct(1, rows, 160, 512), kernels.ToF32, toF32
		switch i {
		case 4:
			stored, kind = kernels.ToBF16, toBF16
		case 5:
			stored, kind = kernels.SwiGLU, swiGLU
		}
		c := kernels.Product("", 1, rows, 160, 512, stored, nil)
		r := newRig(t, "gemm")
		out, a, w := r.room(4*rows*160), put(r, p.a), put(r, p.w)
		g := kernels.GEMMFor(rows)
		if x, y := g.Grid(rows, 160); x*y != c.Blocks || g.Name != c.Kernel {
			t.Errorf("%s: %d blocks, the cost says %d of %s", g.Name, x*y, c.Blocks, c.Kernel)
		}
		r.product(g, out, a, w, pointer(0), rows, 160, 512, kind, pointer(0))
		same(c.Kernel+" weights", r.m.ReadBytes(uint64(w)), c.Weights)
		same(c.Kernel+" rows", r.m.ReadBytes(uint64(a)), c.Activations)
		same(c.Kernel+" written", r.m.Stats(c.Kernel).WrittenBytes, c.Written)
	}
	s := kernels.Shape{Hidden: 128, FFN: 512, Layers: 1, Heads: 4, KVHeads: 2, HeadDim: 64, Vocab: 320}
	q := newCache(3, s.Heads, s.KVHeads, s.HeadDim, 300)
	costs := s.Decode(1, 300)
	r := attentionRig(t, s.HeadDim, "layers")
	p := newPool(r, seeded(1), 4, q)
	p.decode([]query{{0, 299, q}}, 1, 0)
	same("attn_decode KV", r.m.ReadBytes(uint64(p.pages)), of(t, costs, "attn_decode_64").KV)
	same("attn_decode written", r.m.Stats("attn_decode_64").WrittenBytes, of(t, costs, "attn_decode_64").Written)
	merge := r.m.Stats("attn_merge")
	same("attn_merge written", merge.WrittenBytes, of(t, costs, "attn_merge").Written)
	same("attn_merge loaded", merge.ReadBytes-4*128*int64(s.Heads), of(t, costs, "attn_merge").Activations) // without positions

	prompt := s.Prefill(256) // one split
	r = attentionRig(t, s.HeadDim, "layers")
	p = newPool(r, seeded(1), 4, q)
	p.prefill(span(q, 0, 0, 256), 64/(s.Heads/s.KVHeads))
	same("attn_prefill KV", r.m.ReadBytes(uint64(p.pages)), of(t, prompt, "attn_prefill_64").KV)
	same("attn_prefill written", r.m.Stats("attn_prefill_64").WrittenBytes, of(t, prompt, "attn_prefill_64").Written)

	x, w := put(r, make([]float32, s.Hidden)), put(r, make([]float32, s.Hidden))
	r.launch("layers", "rmsnorm", ptxvm.Dim{X: 1}, 256, 0, r.room(2*s.Hidden), x, w, pointer(0), pointer(0), int32(s.Hidden), float32(1), pointer(0))
	same("rmsnorm rows", 2*r.m.ReadBytes(uint64(x)), of(t, costs, "rmsnorm").Activations) // two per layer
	same("rmsnorm weights", 2*r.m.ReadBytes(uint64(w)), of(t, costs, "rmsnorm").Weights)
}

// TestOncePerLaunch checks that products of up to 64 rows load weights once per launch.
func TestOncePerLaunch(t *testing.T) {
	for _, rows := range []int{1, 16, 17, 64} {
		total := int64(0)
		for _, c := range kernels.Llama8B.Decode(rows, 1024) {
			if c.Flops > 0 {
				total += c.Weights
			}
		}
		if total != 2*(32*(6144*4096+4096*4096+28672*4096+14336*4096)+128256*4096) {
			t.Errorf("%d rows load %d bytes of weights", rows, total)
		}
	}
}

// whole estimates the share of g's limits that a step of all these launches can reach.
func whole(costs []kernels.Cost, g kernels.GPU) float64 {
	limit := 0.0
	for i := range costs {
		share, _ := costs[i].Reach(g)
		limit += kernels.Seconds(costs[i:i+1], g) * share
	}
	return limit / kernels.Seconds(costs, g)
}

// TestCostTables checks that docs/gpu.md has the current tables.
func TestCostTables(t *testing.T) {
	var b strings.Builder
	for _, x := range []struct {
		title string
		costs []kernels.Cost
	}{
		{"Decoding, batch 1, 1,024 positions", kernels.Llama8B.Decode(1, 1024)},
		{"Decoding, batch 64, 1,024 positions each", kernels.Llama8B.Decode(64, 1024)},
		{"A prompt of 4,096", kernels.Llama8B.Prefill(4096)},
	} {
		fmt.Fprintf(&b, "%s; the whole step can reach %.0f %% on an H100, %.0f %% on an H200:\n\n%s\n",
			x.title, 100*whole(x.costs, kernels.H100), 100*whole(x.costs, kernels.H200), costTable(x.costs))
	}
	b.WriteString(quantTable())
	const file, from, to = "../../../docs/gpu.md", "<!-- cost tables -->\n", "<!-- end of cost tables -->\n"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), from)
	old, tail, ok2 := strings.Cut(rest, to)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the tables", file)
	}
	if old == b.String() {
		return
	}
	if !*rewrite {
		t.Fatalf("the tables of %s are not up to date: go test ./engine/cuda/kernels -run TestCostTables -rewrite", file)
	}
	if err := os.WriteFile(file, []byte(head+from+b.String()+to+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}
