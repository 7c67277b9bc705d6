package kernels_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/cuda/kernels"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
)

// planted returns a copy of a module in which change replaces lines of a kernel. change gets each line
// without space around it, and returns the lines in its place, or nil to keep it. At least one must
// change.
func planted(t *testing.T, module, kernel string, change func(line string) []string) *ptxvm.Module {
	t.Helper()
	text := kernels.PTX(module)
	from := bytes.Index(text, []byte(".entry "+kernel+"("))
	if from < 0 {
		t.Fatalf("no kernel %s", kernel)
	}
	before, _ := bytes.CutSuffix(text[:from], []byte(".visible "))
	end := from + bytes.Index(text[from:], []byte("\n}\n")) + 3
	out, changed := slices.Clone(before), 0
	for line := range strings.SplitAfterSeq(".visible "+string(text[from:end]), "\n") {
		if lines := change(strings.TrimSpace(line)); lines != nil {
			changed++
			line = strings.Join(lines, "\n") + "\n"
		}
		out = append(out, line...)
	}
	if changed == 0 {
		t.Fatalf("%s: nothing is planted", kernel)
	}
	m, err := ptxvm.Parse(module, out)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// truncated returns a copy of a module in which a kernel computes products with one of its 64-bit
// parameters, which is an offset's factor, in 32 bits.
func truncated(t *testing.T, module, kernel string, parameter int) *ptxvm.Module {
	t.Helper()
	name, register := fmt.Sprintf("[%s_param_%d];", kernel, parameter), "no register"
	return planted(t, module, kernel, func(line string) []string {
		f := strings.Fields(line)
		if len(f) == 3 && f[0] == "ld.param.u64" && f[2] == name {
			register = strings.TrimSuffix(f[1], ",")
			return nil
		}
		if len(f) >= 4 && strings.Contains(f[0], "lo.s64") && strings.TrimRight(f[3], ",;") == register {
			to := strings.TrimSuffix(f[1], ",")
			return []string{line, fmt.Sprintf("and.b64 %s, %s, 4294967295;", to, to)}
		}
		return nil
	})
}

// narrowed returns a copy of a module in which a kernel reads 16 bits of one of its parameters.
func narrowed(t *testing.T, module, kernel string, parameter int) *ptxvm.Module {
	t.Helper()
	name := fmt.Sprintf("[%s_param_%d];", kernel, parameter)
	return planted(t, module, kernel, func(line string) []string {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != "ld.param.u64" || f[2] != name {
			return nil
		}
		register := strings.TrimSuffix(f[1], ",")
		return []string{line, fmt.Sprintf("and.b64 %s, %s, 65535;", register, register)}
	})
}

// The pool of Llama-3.1-8B on a device of 140 GiB: the size of a page, and the last layer's offset and
// last page, which reach beyond 32 bits and 16 bits.
const (
	farElements = 2 * 32 * 8 * 16 * 128
	farLayer    = farElements / 32 * 31
	farPages    = 140 << 30 / (2 * farElements)
)

// farRig returns a rig with memory for a pool of 140 GiB, of which the interpreter makes only the parts
// that are used.
func farRig(t *testing.T, names ...string) (*rig, pointer) {
	t.Helper()
	r := newRig(t, names...)
	r.m = ptxvm.New(ptxvm.Config{MemoryBytes: 160 << 30})
	r.s = r.m.NewStream()
	return r, r.room(farPages * 2 * farElements)
}

// TestFarPages checks attention at the end of a pool of 140 GiB and in the last of 32 layers. Offsets in
// fewer bits must be found: of a page in 32, of a layer in 16.
func TestFarPages(t *testing.T) {
	const dim, tokens = 16, 20
	c, module := newCache(1, 2, 1, dim, tokens), kernels.Attention(dim)
	queries := span(c, 0, tokens-1, tokens)
	want := newPool(attentionRig(t, dim), seeded(2), 4, c).decode(queries, 1, 0)
	for kernel, attend := range map[string]func(*pool, []query) ([]uint16, error){
		"attn_prefill_16": func(p *pool, q []query) ([]uint16, error) { return p.tryPrefill(q, 1) },
		"attn_decode_16":  func(p *pool, q []query) ([]uint16, error) { return p.tryDecode(q, 1, 0) },
	} {
		got, err := attend(farPool(t, c, nil), queries)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, kernel, got, want)
		for what, plant := range map[string]*ptxvm.Module{"page": truncated(t, module, kernel, 4), "layer": narrowed(t, module, kernel, 5)} {
			if got, err := attend(farPool(t, c, plant), queries); err == nil && slices.Equal(got, want) {
				t.Errorf("%s with the offset of a %s in fewer bits passes", kernel, what)
			}
		}
	}
}

// farPool returns a pool whose last pages hold the sequence c in the last layer.
func farPool(t *testing.T, c *cache, changed *ptxvm.Module) *pool {
	t.Helper()
	r, base := farRig(t, kernels.Attention(c.dim), "merge")
	r.changed = changed
	p := &pool{r: r, c: c, shift: 4, pages: base, perSlot: 2, elements: farElements, layer: farLayer}
	ids := []int32{farPages - 1, farPages - 3}
	for i, id := range ids {
		for kind, from := range [][][]uint16{c.k, c.v} {
			for slot, row := range from[16*i : min(16*i+16, c.tokens)] {
				at := int(id)*farElements + farLayer + (kind*16+slot)*c.dim
				r.write(base+pointer(2*at), args(row))
			}
		}
	}
	p.table = put(r, ids)
	return p
}

// TestFarCopies checks the kernels that write and copy pages, with pages at the end of the pool. A page's
// offset in 32 bits must be found.
func TestFarCopies(t *testing.T) {
	const dim, position = 16, 3
	const pieces, last = 32, 140<<30/(16*32) - 1 // of smaller pages, because these kernels copy all of a page
	data, qkv := bf16s(seeded(3), 8*pieces, 1), floats(seeded(1), 3*dim, 1)
	var v []uint16
	for _, x := range qkv[2*dim:] {
		v = append(v, narrow(x))
	}
	far := func(base pointer, page int) pointer { return base + pointer(16*pieces*page) }
	for _, c := range []struct {
		module, kernel string
		parameter      int
		run            func(r *rig, base pointer) (at pointer, err error)
		want           []uint16
	}{
		{"layers", "rope_write", 10, func(r *rig, base pointer) (pointer, error) {
			turns := put(r, make([]float32, dim/2*(position+1)))
			return base + 2*((farPages-1)*farElements+farLayer+(16+position)*dim), r.try("layers", "rope_write", ptxvm.Dim{X: 1, Y: 3}, 32, 0, r.room(2*dim), base, put(r, qkv),
				pointer(0), pointer(0), turns, turns, put(r, []int32{0}), put(r, []int32{position}), put(r, []int32{farPages - 1}), uint64(farElements), uint64(farLayer),
				int32(1), int32(4), int32(1), int32(1), int32(dim), float32(1e-6), pointer(0))
		}, v},
		{"pages", "page_scatter", 3, func(r *rig, base pointer) (pointer, error) {
			return far(base, last), r.try("pages", "page_scatter", ptxvm.Dim{X: 1, Y: 1}, 256, 0, base, put(r, data), put(r, []int32{last}), uint64(pieces))
		}, data},
		{"pages", "page_gather", 3, func(r *rig, base pointer) (pointer, error) {
			out := r.room(16 * pieces)
			r.write(far(base, last), args(data))
			return out, r.try("pages", "page_gather", ptxvm.Dim{X: 1, Y: 1}, 256, 0, out, base, put(r, []int32{last}), uint64(pieces))
		}, data},
		{"pages", "page_copy", 2, func(r *rig, base pointer) (pointer, error) {
			r.write(far(base, last), args(data))
			return far(base, last-1), r.try("pages", "page_copy", ptxvm.Dim{X: 1, Y: 1}, 128, 0, base, put(r, []int32{last, last - 1, 16}), uint64(pieces), int32(pieces), int32(pieces/16))
		}, data},
	} {
		for _, plant := range []bool{false, true} {
			r, base := farRig(t, c.module)
			if plant {
				r.changed = truncated(t, c.module, c.kernel, c.parameter)
			}
			at, err := c.run(r, base)
			b := make([]byte, 2*len(c.want))
			if err == nil {
				err = errors.Join(r.m.CopyOut(r.s, b, uint64(at)), r.m.SyncStream(r.s))
			}
			if err == nil && !bytes.Equal(b, args(c.want)) {
				err = fmt.Errorf("%v, want %v", b, c.want)
			}
			if (err != nil) != plant {
				t.Errorf("%s, with a page's offset in 32 bits %v: %v", c.kernel, plant, err)
			}
		}
	}
}

// TestOrderByWarp checks that states find attention whose softmax is summed in another order in every
// second warp, so that bits depend on where a row stands in its item.
func TestOrderByWarp(t *testing.T) {
	const dim, tokens, warp = 16, 80, "%warp"
	c := newCache(3, 2, 1, dim, tokens)
	queries := span(c, 0, tokens-30, tokens)
	run := func(perItem int, changed *ptxvm.Module) []float32 {
		r := attentionRig(t, dim)
		r.changed = changed
		p := newPool(r, seeded(2), 4, c)
		var items []item
		var order []int32
		for i := 0; i < len(queries); i += perItem {
			n := min(perItem, len(queries)-i)
			items = append(items, item{int32(i), int32(n), 0, tokens})
		}
		for i := range queries {
			order = append(order, int32(i))
		}
		q, slots, positions := upload(r, queries)
		size := len(queries) * c.heads * (dim + 2)
		states := r.room(4 * size)
		values := append(append([]any{states, q}, p.place()...), put(r, items), put(r, order), slots, positions, int32(c.heads), int32(1), p.scale(), pointer(0))
		r.launch(kernels.Attention(dim), "attn_decode_16", ptxvm.Dim{X: len(items), Y: c.kvHeads}, 128, p.sharedBytes(), values...)
		return get[float32](r, states, size)
	}
	plant := planted(t, kernels.Attention(dim), "attn_decode_16", func(line string) []string {
		f := strings.Fields(line)
		switch {
		case len(f) == 3 && f[0] == ".reg" && f[1] == ".b64":
			return []string{line, ".reg .b32 " + warp + "<3>;", "mov.u32 " + warp + "0, %tid.x;", "shr.u32 " + warp + "0, " + warp + "0, 5;",
				"and.b32 " + warp + "0, " + warp + "0, 1;", "mul.lo.s32 " + warp + "0, " + warp + "0, 3;"}
		case len(f) > 3 && f[0] == "shfl.sync.bfly.b32": // of 1 and then 2, or the other way round
			mask := strings.TrimSuffix(f[3], ",")
			f[3] = warp + "1,"
			return []string{"xor.b32 " + warp + "1, " + mask + ", " + warp + "0;", strings.Join(f, " ")}
		}
		return nil
	})
	want := run(1, nil)
	equal(t, "states", run(32, nil), want)
	if slices.Equal(run(32, plant), want) {
		t.Error("another order in every second warp passes")
	}
}

// TestSampleMutants checks that the interpreter reports sampling without one of its barriers: between the
// logits' copy and biases, after biases, and in the search for the candidates that top-k keeps.
func TestSampleMutants(t *testing.T) {
	const vocab = 70
	logits := floats(seeded(3), vocab, 1)
	run := func(without int) error {
		r := newRig(t, "sample")
		at := -1
		r.changed = planted(t, "sample", "sample", func(line string) []string {
			if strings.HasPrefix(line, "bar.sync") {
				at++
			}
			if at == without && strings.HasPrefix(line, "bar.sync") {
				return []string{""}
			}
			return nil
		})
		rows := put(r, []sampleRow{{Temperature: 1, TopK: 30, MinP: 1e-6, Presence: 1, Flags: 3, BiasCount: 2}})
		biases := put(r, []biasEntry{{40, 1}, {7, 1}})
		return r.try("sample", "sample", ptxvm.Dim{X: 1}, kernels.SampleThreads(vocab), 0, r.room(12), put(r, make([]float32, vocab)), put(r, logits), rows, biases, put(r, []uint64{1<<63 - 1, 63}),
			put(r, []int32{0}), put(r, []int32{0}), put(r, make([]uint32, vocab)), int32(vocab), pointer(0))
	}
	if err := run(0); err != nil { // another barrier follows this one
		t.Fatal(err)
	}
	const race, unset = ptxvm.SharedRace, ptxvm.Uninitialised
	for without, want := range map[int]ptxvm.FaultKind{1: unset, 2: ptxvm.GlobalRace, 4: race, 5: unset, 6: race, 7: unset, 8: race, 9: race, 10: race} {
		var f *ptxvm.Fault
		if err := run(without); !errors.As(err, &f) || f.Kind != want {
			t.Errorf("without barrier %d: %v, want: %v", without, err, want)
		}
	}
}
