package cuda

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/vm"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/kv"
)

// goldenDir has logits of small models, computed by transformers in f64. Package engine/cpu describes
// and checks the files.
const goldenDir = "../cpu/testdata/golden"

type golden struct {
	Models []struct {
		Name      string
		Generated string `json:"generated_sha256"`
		Prompts   []struct {
			Tokens []kv.Token
			Logits []float64
		}
	}
}

// openGolden opens a model of testdata, which lacks a tokenizer.
func openGolden(t *testing.T, name string, generated bool) *model.Model {
	t.Helper()
	dir := t.TempDir()
	if err := random.Generate(dir, random.Spec{Preset: random.Nano, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	if !generated {
		nano := dir
		dir = filepath.Join(t.TempDir(), "model")
		if err := os.CopyFS(dir, os.DirFS(filepath.Join(goldenDir, name))); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(nano, "tokenizer.json"))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "tokenizer.json"), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	m, err := model.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// logitsAfter runs a prompt in chunks and reads the logits after it from the device.
func logitsAfter(t *testing.T, b *Backend, tokens []kv.Token, chunk int) []float32 {
	t.Helper()
	var pages []kv.PageID
	for p := range kv.CeilPages(len(tokens), b.info.PageTokens) {
		pages = append(pages, kv.PageID(b.info.NumPages-1-p))
	}
	for at, seq := 0, uint64(1); at < len(tokens); seq++ {
		n := min(chunk, len(tokens)-at)
		row := engine.Row{Start: int32(at), Tokens: tokens[at : at+n], Pages: pages[kv.CeilPages(at, b.info.PageTokens):kv.CeilPages(at+n, b.info.PageTokens)], Sample: at+n == len(tokens)}
		ticket, err := b.Submit(&engine.Batch{Seq: seq, Rows: []engine.Row{row}})
		if err != nil {
			t.Fatal(err)
		}
		<-ticket.Done()
		if res, err := ticket.Result(); err != nil || len(res.Out) > 0 && res.Out[0].Err != nil {
			t.Fatalf("%+v, %v", res, err)
		}
		at += n
	}
	d := b.dev // idle: nothing is pending
	host, err := d.ctx.HostAlloc(4 * b.info.Vocab)
	if err == nil {
		err = d.ctx.CopyOut(d.stream, host, d.room.logits)
	}
	if err == nil {
		err = d.ctx.SyncStream(d.stream)
	}
	if err != nil {
		t.Fatal(err)
	}
	logits := make([]float32, b.info.Vocab)
	for i := range logits {
		logits[i] = math.Float32frombits(binary.LittleEndian.Uint32(host[4*i:]))
	}
	return logits
}

// bf16Errors returns the relative L2 error of the logits if the result of each operation is
// rounded to bf16, as transformers does in that type: by model, by tokens of the prompt. They
// were computed in numpy from the same files and prompts; without rounding that program is
// within 2e-6 of the goldens.
func bf16Errors(t *testing.T) map[string]map[int]float64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "bf16.json"))
	var errs map[string]map[int]float64
	if err == nil {
		err = json.Unmarshal(text, &errs)
	}
	if err != nil {
		t.Fatal(err)
	}
	return errs
}

// relative returns the L2 distance of got from want, divided by want's length.
func relative[T float32 | float64](got []T, want []float64) float64 {
	diff, norm := 0.0, 0.0
	for i, w := range want {
		diff += (float64(got[i]) - w) * (float64(got[i]) - w)
		norm += w * w
	}
	return math.Sqrt(diff / norm)
}

// TestGolden checks that the logits of all models are within a relative L2 distance of 2e-2 of
// those that transformers computes in f64, and at most twice as far from them as logits with each
// operation rounded to bf16. With -v it prints the distances. Only the first model
// of each size of heads computes a prompt of 70 tokens, and only nano one of 500; with -shapes all that have one.
func TestGolden(t *testing.T) {
	if raceDetector {
		t.Skip("one goroutine, ten times slower")
	}
	text, err := os.ReadFile(filepath.Join(goldenDir, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	driver := vm.New(ptxvm.Config{MemoryBytes: 512 << 20})
	rounded := bf16Errors(t)
	seen := map[int]bool{} // sizes of heads
	for _, gm := range g.Models {
		m := openGolden(t, gm.Name, gm.Generated != "")
		most := 500
		if !*AllShapes && gm.Name != "nano" { // a prompt of several splits takes seconds
			most = 70
			if seen[m.Config().HeadDim] {
				most = 17
			}
		}
		seen[m.Config().HeadDim] = true
		for _, p := range gm.Prompts {
			if len(p.Tokens) > most {
				continue
			}
			b, err := Open(m, Config{Driver: driver, KVTokens: 16 + len(p.Tokens), MaxSlots: 1, MaxRows: 2, MaxTokens: 512})
			if err != nil {
				t.Fatal(err)
			}
			logits := logitsAfter(t, b, p.Tokens, 512)
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			rel := relative(logits, p.Logits)
			in16, known := rounded[gm.Name][len(p.Tokens)]
			t.Logf("%s, %d tokens: rel-L2 %.3g, in bf16 %.3g", gm.Name, len(p.Tokens), rel, in16)
			limit := 2e-2
			if known {
				limit = min(limit, 2*in16)
			}
			if !(rel <= limit) {
				t.Errorf("%s, %d tokens: rel-L2 %.3g, want at most %.3g", gm.Name, len(p.Tokens), rel, limit)
			}
		}
	}
}

// TestUnsupported checks that a model that the kernels can't compute is refused with the reason.
func TestUnsupported(t *testing.T) {
	good := model.Config{HeadDim: 96, Hidden: 48, Heads: 3, KVHeads: 1}
	if err := supported(&good); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(c *model.Config){
		"heads of 48, the kernels have [16 32 64 80 96 128]": func(c *model.Config) { c.HeadDim = 48 },
		"heads of 256":                             func(c *model.Config) { c.HeadDim = 256 },
		"hidden size 47, want an even one":         func(c *model.Config) { c.Hidden = 47 },
		"17 query heads for a KV head, at most 16": func(c *model.Config) { c.Heads = 17 },
	} {
		c := good
		change(&c)
		if err := supported(&c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
