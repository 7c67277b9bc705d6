package gpucheck

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/kernels"
)

// exact returns a case of one launch whose bits must equal the interpreter's.
func exact(module, kernel string, grid [3]int, threads int, args func(p []cudrv.Ptr) []byte, buffers ...[]byte) kernelCase {
	return kernelCase{name: kernel, buffers: buffers, launches: []launch{{module, kernel, grid, threads, 0, args}}}
}

// samplingCases has cases of three rows: greedy, sampled with cut-offs, and sampled with penalties and
// a bias.
func samplingCases(r *rand.Rand) []kernelCase {
	const rows, vocab, top = 3, 700, 20
	logits := normals(r, rows*vocab, false)
	row := func(slot int32, temperature, topP, penalty float32, topK, flags, biases int32) []byte {
		return cudrv.Args(uint64(77), slot, int32(5), temperature, topP, float32(0), penalty, penalty, penalty, topK, flags, int32(0), biases, int32(-1), slot, int32(0), int32(0))
	}
	draws := append(append(row(0, 0, 0, 0, 0, 2, 0), row(1, 1, 0.8, 0, 40, 2, 0)...), row(2, 1.5, 0, 1.2, 0, 3, 1)...)
	counts := make([]byte, 4*rows*vocab)
	for t := range vocab {
		binary.LittleEndian.PutUint32(counts[4*(2*vocab+t):], uint32(t%3))
	}
	bias := binary.LittleEndian.AppendUint32(words(9), math.Float32bits(3))
	return []kernelCase{
		exact("sample", "sample", [3]int{rows}, kernels.SampleThreads(vocab), func(p []cudrv.Ptr) []byte {
			return cudrv.Args(p[7], p[6], p[1], p[0], p[2], cudrv.Ptr(0), p[3], p[4], p[5], int32(vocab), cudrv.Ptr(0))
		}, draws, logits, bias, words(0, 0, 0), words(0, 0, 0), counts, make([]byte, 4*rows*vocab), make([]byte, 12*rows)),
		exact("sample", "logprobs", [3]int{rows}, 512, func(p []cudrv.Ptr) []byte {
			return cudrv.Args(p[2], p[3], p[0], p[1], int32(top), int32(vocab), cudrv.Ptr(0))
		}, logits, words(top, 3, 1), make([]byte, 8*rows), make([]byte, 8*rows*top)),
		exact("sample", "prompt_logprobs", [3]int{rows}, 512, func(p []cudrv.Ptr) []byte {
			return cudrv.Args(p[5], p[4], p[3], p[2], p[0], p[1], p[2], int32(top), int32(vocab))
		}, logits, words(5, 0, 0, 600, 1, 1, 7, 2, 2), words(0, 0, 0), make([]byte, 4*rows), make([]byte, 8*rows*top), make([]byte, 8*rows)),
	}
}

// placingCases has the kernels that write rows, pages and tables.
func placingCases(r *rand.Rand) []kernelCase {
	const tokens, heads, kvHeads, dim, pages, page = 5, 4, 2, 64, 3, 4
	const all, elements = heads + 2*kvHeads, 2 * kvHeads * page * dim
	pool := normals(r, pages*elements, true)
	gather := func(p []cudrv.Ptr) []byte { return cudrv.Args(p[2], p[0], p[1], uint64(elements/8)) }
	return []kernelCase{
		exact("layers", "rope_write", [3]int{tokens, all}, 32, func(p []cudrv.Ptr) []byte {
			return cudrv.Args(p[8], p[9], p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], uint64(elements), uint64(0),
				int32(pages), int32(2), int32(heads), int32(kvHeads), int32(dim), float32(1e-5), cudrv.Ptr(0))
		}, normals(r, tokens*all*dim, false), normals(r, dim, false), normals(r, dim, false), normals(r, 12*dim/2, false), normals(r, 12*dim/2, false),
			words(0, 0, 0, 0, 0), words(3, 4, 5, 6, 7), words(2, 0, 1), make([]byte, 2*tokens*heads*dim), make([]byte, 2*pages*elements)),
		exact("pages", "page_gather", [3]int{2, 3}, 256, gather, pool, words(2, 0), make([]byte, 2*2*elements)),
		exact("pages", "page_scatter", [3]int{2, 3}, 256, gather, normals(r, 2*elements, true), words(2, 0), make([]byte, 2*pages*elements)),
		exact("pages", "table_write", [3]int{1}, 256, func(p []cudrv.Ptr) []byte {
			return cudrv.Args(p[1], p[0], int32(3), int32(4), cudrv.Ptr(0))
		}, words(0, 1, 7, 1, 3, 8, 0, 0, 9), make([]byte, 4*8)),
		exact("layers", "keep", [3]int{2}, 256, func(p []cudrv.Ptr) []byte { return cudrv.Args(p[2], p[0], p[1], int32(dim)) },
			normals(r, tokens*dim, false), words(1, 4, 0, 2), make([]byte, 4*2*dim)),
		exact("layers", "check_finite", [3]int{2}, 256, func(p []cudrv.Ptr) []byte {
			return cudrv.Args(p[2], p[0], p[1], int32(dim), cudrv.Ptr(0))
		}, append(normals(r, dim, false), append(normals(r, dim-1, false), 0, 0, 0x80, 0x7f)...), words(0, 1), make([]byte, 8)),
	}
}

// slotCases has the kernels for the state of slots, and make_weights.
func slotCases(r *rand.Rand) []kernelCase {
	const slots, vocab, made = 3, 700, 300
	counts := make([]byte, 4*slots*vocab)
	for i := range counts {
		counts[i] = byte(r.Uint32())
	}
	return []kernelCase{
		exact("pages", "slot_clear", [3]int{2, 2}, 256, func(p []cudrv.Ptr) []byte { return cudrv.Args(p[0], p[2], p[1], int32(vocab)) },
			words(4, 5, 6), words(2, 0), counts),
		exact("pages", "slot_count", [3]int{1}, 256, func(p []cudrv.Ptr) []byte { return cudrv.Args(p[1], p[0], int32(4), int32(vocab)) },
			words(0, 5, 0, 0, 5, 0, 1, 5, 1, 2, 699, 0), make([]byte, 4*slots*vocab)),
		exact("pages", "slot_fail", [3]int{1}, 256, func(p []cudrv.Ptr) []byte { return cudrv.Args(p[2], p[0], p[1], int32(3), cudrv.Ptr(0)) },
			words(0, 1, 0), words(2, 1, 0), words(7, 8, 9)),
		exact("weights", "make_weights", [3]int{(made + 255) / 256}, 256, func(p []cudrv.Ptr) []byte { return cudrv.Args(p[0], uint64(made), uint64(9)) },
			make([]byte, 8*made)),
	}
}
