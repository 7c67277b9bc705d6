package model

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/engine/model/gguf"
)

// input returns a damaged file.
func (s *inputStock) input(rng *rand.Rand) []byte {
	f := s.files[rng.IntN(len(s.files))].clone()
	for range rng.IntN(4) {
		damages[rng.IntN(len(damages))](f, rng)
	}
	data := f.bytes()
	if rng.IntN(2) == 0 {
		return data
	}
	for range 1 + rng.IntN(4) {
		data = damageBytes(data, rng)
	}
	return data
}

// damages are the ways to damage a part of a file.
var damages = []func(*rawFile, *rand.Rand){
	damageHeader, damagePair, damagePair, damageKeys, damageShape, damageShape, damagePlace, damageTensors,
	damageTokens, damageTokens, damageKinds, damageMerges, damageScores, growVocabulary, damageParts,
}

// edge returns a number at which arithmetic tends to go wrong.
func edge(rng *rand.Rand) uint64 {
	edges := []uint64{0, 1, 2, 15, 16, 31, 32, 33, 63, 64, 255, 256, 1 << 10, 1 << 16, 1<<20 - 1, 1 << 20, 1 << 24, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32,
		1 << 40, 1<<62 - 1, 1 << 62, math.MaxInt64, 1 << 63, math.MaxUint64 - 31, math.MaxUint64}
	n := edges[rng.IntN(len(edges))]
	switch rng.IntN(4) {
	case 0:
		return n + uint64(rng.IntN(64)) - 32
	case 1:
		return rng.Uint64() >> rng.IntN(64)
	}
	return n
}

func damageHeader(f *rawFile, rng *rand.Rand) {
	switch rng.IntN(8) {
	case 0:
		f.magic = []string{"", "GGU", "FUGG", "GGML"}[rng.IntN(4)]
	case 1:
		f.version = uint32(edge(rng))
	case 2:
		f.version = 2
	case 3, 4:
		f.tensorN = edge(rng)
	case 5:
		f.tensorN += uint64(rng.IntN(3)) - 1
	case 6:
		f.pairN = edge(rng)
	default:
		f.pairN += uint64(rng.IntN(3)) - 1
	}
}

// damagePair gives a pair another value, usually of its own kind.
func damagePair(f *rawFile, rng *rand.Rand) {
	if len(f.pairs) == 0 {
		return
	}
	p := &f.pairs[rng.IntN(len(f.pairs))]
	kind := gguf.Kind(p.kind)
	if rng.IntN(3) == 0 {
		kind = gguf.Kind(rng.IntN(15))
	}
	p.kind = uint32(kind)
	switch kind {
	case gguf.String:
		p.raw = rawText(nil, odd[rng.IntN(len(odd))])
		if rng.IntN(6) == 0 {
			p.raw = le.AppendUint64(nil, edge(rng))
		}
	case gguf.Array:
		n := edge(rng)
		if rng.IntN(2) == 0 {
			n = uint64(rng.IntN(20))
		}
		p.raw = le.AppendUint64(le.AppendUint32(nil, uint32(rng.IntN(14))), n)
		for range rng.IntN(64) {
			p.raw = append(p.raw, byte(rng.Uint32()))
		}
	case gguf.Uint64, gguf.Int64, gguf.Float64:
		p.raw = le.AppendUint64(nil, edge(rng))
	case gguf.Uint8, gguf.Int8, gguf.Bool:
		p.raw = []byte{byte(edge(rng))}
	case gguf.Uint16, gguf.Int16:
		p.raw = le.AppendUint16(nil, uint16(edge(rng)))
	default:
		p.raw = le.AppendUint32(nil, uint32(edge(rng)))
	}
}

// odd are texts with a meaning somewhere in the format, and some without.
var odd = []string{"", "llama", "qwen2", "qwen3", "gpt2", "gpt-2", "smollm", "llama-bpe", "qwen2", "tekken", "gpt-4o", "deepseek-v3", "none", "a b", "\xff\xfe", "{% for %}",
	"{{ messages }}", strings.Repeat("{% if a %}", 40), strings.Repeat("(", 200), strings.Repeat("x", 300), "token_embd.weight", "blk.0.attn_q.weight", "blk.1.attn_q.weight", "output.weight", ropeFactors}

// damageKeys adds, drops, duplicates or renames pairs.
func damageKeys(f *rawFile, rng *rand.Rand) {
	if len(f.pairs) == 0 {
		return
	}
	i := rng.IntN(len(f.pairs))
	switch rng.IntN(4) {
	case 0:
		f.pairs = slices.Delete(f.pairs, i, i+1)
		f.pairN--
	case 1:
		f.pairs = append(f.pairs, f.pairs[i])
		f.pairN++
	case 2:
		f.pairs[i].key = odd[rng.IntN(len(odd))]
	default:
		keys := []string{"general.alignment", "split.count", "split.no", "split.tensors.count", wordKeys + "add_bos_token", wordKeys + "eot_token_id", wordKeys + "padding_token_id",
			wordKeys + "add_space_prefix", "llama.rope.scaling.factor", "llama.expert_count", "llama.rope.dimension_count", "qwen3.attention.sliding_window", templateKey + ".tool"}
		f.set("", rawPairOf(keys[rng.IntN(len(keys))], uint32(edge(rng))))
	}
}

func damageShape(f *rawFile, rng *rand.Rand) {
	if len(f.tensors) == 0 {
		return
	}
	t := &f.tensors[rng.IntN(len(f.tensors))]
	switch rng.IntN(5) {
	case 0:
		t.dims = append(t.dims, edge(rng))
	case 1:
		if len(t.dims) > 0 {
			t.dims = t.dims[:len(t.dims)-1]
		}
	case 2:
		t.typ = uint32(rng.IntN(42))
	case 3:
		slices.Reverse(t.dims)
	default:
		if len(t.dims) > 0 {
			t.dims[rng.IntN(len(t.dims))] = edge(rng)
		}
	}
}

func damagePlace(f *rawFile, rng *rand.Rand) {
	if len(f.tensors) == 0 {
		return
	}
	t := &f.tensors[rng.IntN(len(f.tensors))]
	switch rng.IntN(3) {
	case 0:
		t.offset = edge(rng)
	case 1:
		t.offset = f.tensors[rng.IntN(len(f.tensors))].offset
	default:
		t.offset += edge(rng) &^ 31
	}
}

// damageTensors drops, duplicates, renames or invents tensors.
func damageTensors(f *rawFile, rng *rand.Rand) {
	if len(f.tensors) == 0 {
		return
	}
	i := rng.IntN(len(f.tensors))
	switch rng.IntN(4) {
	case 0:
		f.tensors = slices.Delete(f.tensors, i, i+1)
		f.tensorN--
	case 1:
		f.tensors = append(f.tensors, f.tensors[i])
		f.tensorN++
	case 2:
		f.tensors[i].name = odd[rng.IntN(len(odd))]
	default:
		n := 1 + rng.IntN(2000) // with no bytes, or all at the same offset
		for range n {
			f.tensors = append(f.tensors, rawTensor{odd[rng.IntN(len(odd))], []uint64{uint64(rng.IntN(3))}, 0, 0})
		}
		f.tensorN += uint64(n)
	}
}

func damageTokens(f *rawFile, rng *rand.Rand) {
	n := 14
	if rng.IntN(4) == 0 {
		n = rng.IntN(30)
	}
	alphabet := []string{"a", "b", "ab", "Ġ", "▁", "\xff", "", "é", "<0x41>", "<0xZZ>", "</s>", "aaaa", "🙂", "\x00", "<|im_end|>"}
	tokens := make([]string, n)
	for i := range tokens {
		for range 1 + rng.IntN(3) {
			tokens[i] += alphabet[rng.IntN(len(alphabet))]
		}
	}
	f.set(wordKeys+"tokens", rawPairOf(wordKeys+"tokens", tokens))
}

func damageKinds(f *rawFile, rng *rand.Rand) {
	kinds := make([]int32, 14)
	for i := range kinds {
		kinds[i] = int32(rng.IntN(8))
	}
	if rng.IntN(8) == 0 {
		kinds[0] = int32(edge(rng))
	}
	f.set(wordKeys+"token_type", rawPairOf(wordKeys+"token_type", kinds))
}

func damageMerges(f *rawFile, rng *rand.Rand) {
	parts := []string{"a", "b", "ab", "", " ", "zz", "\xff", "Ġ", "a b"}
	merges := make([]string, rng.IntN(40))
	for i := range merges {
		merges[i] = parts[rng.IntN(len(parts))] + " " + parts[rng.IntN(len(parts))]
	}
	f.set(wordKeys+"merges", rawPairOf(wordKeys+"merges", merges))
}

func damageScores(f *rawFile, rng *rand.Rand) {
	scores := make([]float32, 14)
	for i := range scores {
		scores[i] = math.Float32frombits(uint32(edge(rng)))
	}
	f.set(wordKeys+"scores", rawPairOf(wordKeys+"scores", scores))
}

// growVocabulary makes a large vocabulary of texts that can each be merged in many ways: the
// implied merges grow faster than the file.
func growVocabulary(f *rawFile, rng *rand.Rand) {
	if rng.IntN(20) > 0 {
		return // large files take too long
	}
	n := 1 + rng.IntN(300)
	tokens, kinds, scores := make([]string, n), make([]int32, n), make([]float32, n)
	for i := range tokens {
		tokens[i], kinds[i], scores[i] = strings.Repeat("a", i+1), 1, float32(-i)
	}
	f.set(wordKeys+"tokens", rawPairOf(wordKeys+"tokens", tokens))
	f.set(wordKeys+"token_type", rawPairOf(wordKeys+"token_type", kinds))
	f.set(wordKeys+"scores", rawPairOf(wordKeys+"scores", scores))
}

// damageParts makes the file claim to be one of several parts.
func damageParts(f *rawFile, rng *rand.Rand) {
	f.set("split.count", rawPairOf("split.count", uint32(edge(rng))))
	f.set("split.no", rawPairOf("split.no", uint32(rng.IntN(3))))
}

// damageBytes changes bytes regardless of the format.
func damageBytes(data []byte, rng *rand.Rand) []byte {
	if len(data) == 0 {
		return data
	}
	at := rng.IntN(len(data))
	if rng.IntN(2) == 0 {
		at = rng.IntN(min(len(data), 1500)) // where the header, the metadata and the table are
	}
	switch rng.IntN(6) {
	case 0:
		return data[:at]
	case 1:
		data[at] ^= 1 << rng.IntN(8)
	case 2:
		data[at] = byte(edge(rng))
	case 3:
		if at+8 <= len(data) {
			le.PutUint64(data[at:], edge(rng))
		}
	case 4:
		if at+4 <= len(data) {
			le.PutUint32(data[at:], uint32(edge(rng)))
		}
	default:
		end := min(len(data), at+1+rng.IntN(64))
		return slices.Delete(data, at, end)
	}
	return data
}
