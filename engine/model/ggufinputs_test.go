package model

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/engine/model/gguf/writer"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

var (
	inputCount = flag.Int("gguf-inputs", 1000, "TestGGUFInputs: how many damaged files to read")
	inputFirst = flag.Uint64("gguf-first", 0, "TestGGUFInputs: number of the first file")
	inputSeed  = flag.Uint64("gguf-seed", 1, "TestGGUFInputs: of the files")
	allTypes   = flag.Bool("gguf-types", false, "TestGGUFIsTheDirectory: all types for each architecture, not the first alone")
)

// TestGGUFInputs reads damaged files made from a seed: headers, metadata, offsets, shapes and
// vocabularies. None may panic or allocate more than its size permits.
//
//	go test ./engine/model -run TestGGUFInputs -timeout 2h -args -gguf-inputs 2000000 -gguf-seed 7
func TestGGUFInputs(t *testing.T) {
	stock := newInputStock(t)
	dir, opened := t.TempDir(), 0
	type peak struct {
		input uint64
		value float64
	}
	var ratio, slowest peak
	for i := *inputFirst; i < *inputFirst+uint64(*inputCount); i++ {
		rng := rand.New(rand.NewPCG(*inputSeed, i))
		data := stock.input(rng)
		before, began := heapAllocs(), time.Now()
		ok, failure := readInput(data, i%512 == 0, dir)
		took, allocated := time.Since(began).Seconds(), heapAllocs()-before
		if ok {
			opened++
		}
		most := inputAllocBase + inputAllocRatio*uint64(len(data))
		if allocated > most {
			allocated = exactAllocs(func() { readInput(data, i%512 == 0, dir) })
		}
		if allocated > most {
			failure = fmt.Sprintf("%d bytes allocated for a file of %d", allocated, len(data))
		}
		if failure != "" {
			t.Fatalf("input %d: %s\ngo test ./engine/model -run TestGGUFInputs -args -gguf-inputs 1 -gguf-first %d -gguf-seed %d", i, failure, i, *inputSeed)
		}
		if r := float64(allocated) / float64(len(data)+1); len(data) > 1<<14 && r > ratio.value {
			ratio = peak{i, r}
		}
		if took > slowest.value {
			slowest = peak{i, took}
		}
	}
	t.Logf("%d files read, %d of them whole; most allocated for a byte of a file: %.0f bytes (input %d); slowest %.3f s (input %d)",
		*inputCount, opened, ratio.value, ratio.input, slowest.value, slowest.input)
	if opened == 0 && *inputCount >= 1000 {
		t.Error("no file was valid, so the code after parsing was not tested")
	}
}

// A file of n bytes may allocate base + ratio*n. A token of a few bytes has entries in maps and
// a line in tokenizer.json; the byte tables and regular expressions are the base.
const (
	inputAllocBase  = 4 << 20
	inputAllocRatio = 200
)

// heapAllocs returns the bytes allocated so far. It is cheap, but counts small objects late, a
// span at a time.
func heapAllocs() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// exactAllocs returns the bytes that f allocates.
func exactAllocs(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// readInput reads a file as Open does, some from disk, and uses its contents. failure describes
// a panic.
func readInput(data []byte, disk bool, dir string) (ok bool, failure string) {
	defer func() {
		if p := recover(); p != nil {
			failure = fmt.Sprintf("panic: %v", p)
		}
	}()
	if disk {
		path := filepath.Join(dir, "m-00001-of-00002.gguf")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return false, err.Error()
		}
		m, err := Open(path)
		if err != nil {
			return false, ""
		}
		return true, fmtError(m.Close())
	}
	w := &weights{tensors: map[string]*Tensor{}, path: "input"}
	file, err := w.add(data, "input")
	if err != nil {
		return false, ""
	}
	if v, err := readVocabulary(&file.Meta); err == nil {
		if words, err := v.files(); err == nil {
			chat.Parse(words["tokenizer_config.json"])
		}
	}
	m, err := fromGGUF("input", w, &file.Meta)
	if err != nil {
		return false, ""
	}
	m.Tokenizer().EncodePrompt(nil, "any text\n")
	for _, s := range m.slots() {
		widened(*s.dst)
	}
	return true, ""
}

func fmtError(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// rawFile is a GGUF file in parts, each of which may be wrong.
type rawFile struct {
	magic          string
	version        uint32
	tensorN, pairN uint64 // as in the header
	pairs          []rawPair
	tensors        []rawTensor
	data           []byte
}

type rawPair struct {
	key  string
	kind uint32
	raw  []byte
}

type rawTensor struct {
	name   string
	dims   []uint64 // innermost first
	typ    uint32
	offset uint64
}

var le = binary.LittleEndian

func rawText(out []byte, s string) []byte { return append(le.AppendUint64(out, uint64(len(s))), s...) }

func rawStrings(all []string) []byte {
	out := le.AppendUint64(le.AppendUint32(nil, uint32(gguf.String)), uint64(len(all)))
	for _, s := range all {
		out = rawText(out, s)
	}
	return out
}

func rawPairOf(key string, value any) rawPair {
	switch v := value.(type) {
	case uint32:
		return rawPair{key, uint32(gguf.Uint32), le.AppendUint32(nil, v)}
	case float32:
		return rawPair{key, uint32(gguf.Float32), le.AppendUint32(nil, math.Float32bits(v))}
	case string:
		return rawPair{key, uint32(gguf.String), rawText(nil, v)}
	case []string:
		return rawPair{key, uint32(gguf.Array), rawStrings(v)}
	case []int32:
		out := le.AppendUint64(le.AppendUint32(nil, uint32(gguf.Int32)), uint64(len(v)))
		for _, n := range v {
			out = le.AppendUint32(out, uint32(n))
		}
		return rawPair{key, uint32(gguf.Array), out}
	case []float32:
		out := le.AppendUint64(le.AppendUint32(nil, uint32(gguf.Float32)), uint64(len(v)))
		for _, n := range v {
			out = le.AppendUint32(out, math.Float32bits(n))
		}
		return rawPair{key, uint32(gguf.Array), out}
	}
	panic(fmt.Sprintf("a pair of %T", value))
}

func (f *rawFile) bytes() []byte {
	out := le.AppendUint32([]byte(f.magic), f.version)
	out = le.AppendUint64(le.AppendUint64(out, f.tensorN), f.pairN)
	for _, p := range f.pairs {
		out = append(le.AppendUint32(rawText(out, p.key), p.kind), p.raw...)
	}
	for _, t := range f.tensors {
		out = le.AppendUint32(rawText(out, t.name), uint32(len(t.dims)))
		for _, n := range t.dims {
			out = le.AppendUint64(out, n)
		}
		out = le.AppendUint64(le.AppendUint32(out, t.typ), t.offset)
	}
	out = append(out, make([]byte, writer.Padding(len(out)))...)
	return append(out, f.data...)
}

// clone returns a copy to damage. It shares bytes, which damage replaces but never modifies.
func (f *rawFile) clone() *rawFile {
	c := *f
	c.pairs, c.tensors = slices.Clone(f.pairs), slices.Clone(f.tensors)
	for i := range c.tensors {
		c.tensors[i].dims = slices.Clone(c.tensors[i].dims)
	}
	return &c
}

func (f *rawFile) set(key string, p rawPair) {
	for i := range f.pairs {
		if f.pairs[i].key == key {
			f.pairs[i] = p
			return
		}
	}
	f.pairs = append(f.pairs, p)
	f.pairN++
}

// inputStock holds the valid files that inputs are damaged copies of.
type inputStock struct{ files []*rawFile }

func newInputStock(t *testing.T) *inputStock {
	s := &inputStock{}
	for _, typ := range []gguf.Type{gguf.F32, gguf.F16, gguf.BF16, gguf.Q4_0, gguf.Q5_1, gguf.Q8_0, gguf.IQ4_NL} {
		for _, arch := range []Arch{Llama, Qwen2, Qwen3} {
			for _, pieces := range []bool{false, true} {
				f := wholeFile(arch, typ, pieces)
				s.files = append(s.files, f)
				if ok, failure := readInput(f.bytes(), false, ""); !ok || failure != "" {
					t.Fatalf("%v %v: the file before any damage: read %v, %s", arch, typ, ok, failure)
				}
			}
		}
	}
	return s
}

// wholeFile returns the smallest model: one layer, two heads of 16.
func wholeFile(arch Arch, typ gguf.Type, pieces bool) *rawFile {
	f := &rawFile{magic: "GGUF", version: 3}
	pair := func(key string, value any) { f.pairs = append(f.pairs, rawPairOf(key, value)) }
	name := strings.Replace(arch.String(), "mistral", "llama", 1) // Mistral's files say llama
	pair("general.architecture", name)
	for key, n := range map[string]uint32{"block_count": 1, "context_length": 64, "embedding_length": 32, "feed_forward_length": 32,
		"attention.head_count": 2, "attention.head_count_kv": 1, "attention.key_length": 16, "attention.value_length": 16} {
		pair(name+"."+key, n)
	}
	slices.SortFunc(f.pairs[1:], func(a, b rawPair) int { return strings.Compare(a.key, b.key) })
	pair(name+".attention.layer_norm_rms_epsilon", float32(1e-5))
	pair(name+".rope.freq_base", float32(10000))
	tokens := []string{"<unk>", "<s>", "</s>", "a", "b", "ab", "t", "x", "e", "Ġ", "▁", "▁a", "<0x0A>", "<|im_end|>"}
	kinds := []int32{2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 6, 3}
	pair(wordKeys+"tokens", tokens)
	pair(wordKeys+"token_type", kinds)
	if pieces {
		pair(wordKeys+"model", "llama")
		pair(wordKeys+"scores", make([]float32, len(tokens)))
	} else {
		pair(wordKeys+"model", "gpt2")
		pair(wordKeys+"pre", "smaug-bpe")
		pair(wordKeys+"merges", []string{"a b"})
	}
	pair(wordKeys+"bos_token_id", uint32(1))
	pair(wordKeys+"eos_token_id", uint32(2))
	pair(templateKey, "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}")
	f.pairN = uint64(len(f.pairs))
	f.weigh(arch, typ, uint64(len(tokens)))
	return f
}

// weigh adds the tensors.
func (f *rawFile) weigh(arch Arch, typ gguf.Type, vocab uint64) {
	add := func(name string, t gguf.Type, dims ...uint64) {
		values := 1
		for _, n := range dims {
			values *= int(n)
		}
		f.tensors = append(f.tensors, rawTensor{name, dims, uint32(t), uint64(len(f.data))})
		f.data = append(f.data, make([]byte, t.Bytes(values))...)
		f.data = append(f.data, make([]byte, writer.Padding(len(f.data)))...)
	}
	add("token_embd.weight", typ, 32, vocab)
	add("output_norm.weight", gguf.F32, 32)
	for _, norm := range []string{"attn_norm", "ffn_norm"} {
		add("blk.0."+norm+".weight", gguf.F32, 32)
	}
	add("blk.0.attn_q.weight", typ, 32, 32)
	add("blk.0.attn_k.weight", typ, 32, 16)
	add("blk.0.attn_v.weight", typ, 32, 16)
	if arch == Qwen2 {
		add("blk.0.attn_q.bias", gguf.F32, 32)
		add("blk.0.attn_k.bias", gguf.F32, 16)
		add("blk.0.attn_v.bias", gguf.F32, 16)
	}
	if arch == Qwen3 {
		add("blk.0.attn_q_norm.weight", gguf.F32, 16)
		add("blk.0.attn_k_norm.weight", gguf.F32, 16)
	}
	for _, matrix := range []string{"attn_output", "ffn_gate", "ffn_up", "ffn_down"} {
		add("blk.0."+matrix+".weight", typ, 32, 32)
	}
	f.tensorN = uint64(len(f.tensors))
}
