package main

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/internal/opticks"
	"github.com/coppice-llm/coppice/local"
	"github.com/coppice-llm/coppice/scheduler"
)

// cosine returns the cosine of the angle between two vectors.
func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		ab, aa, bb = ab+float64(a[i])*float64(b[i]), aa+float64(a[i])*float64(a[i]), bb+float64(b[i])*float64(b[i])
	}
	return ab / math.Sqrt(aa*bb)
}

// TestLlamaEmbeddings compares embeddings of texts of 1 to 600 tokens with llama.cpp's, for both poolings:
// with weights of f16 the cosine is at least 0.9999, with those of the file, whose products both sides
// round in their own way, 0.99. -v prints the table.
func TestLlamaEmbeddings(t *testing.T) {
	file := smol.path(t)
	program(t, "llama-server")
	all := opticks.Text()
	texts := []string{"Light", "What is light?", "Grüße, 世界! 🌍"}
	for _, n := range []int{80, 300, 1000, 2400} {
		for i := range 5 {
			at := 1000 * (n + 7*i) % (len(all) - n)
			texts = append(texts, strings.ToValidUTF8(all[at:at+n], ""))
		}
	}
	for _, of := range []struct {
		name, file string
		options    []string
		least      float64
	}{
		{"f16", widened(t, file), nil, 0.9999},
		{"as published", file, nil, 0.99},
	} {
		m, err := local.Open(of.file, local.Options{KVTokens: 4096})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []scheduler.Pooling{scheduler.LastToken, scheduler.MeanTokens} {
			l := startLlama(t, of.file, append([]string{"--embeddings", "--pooling", p.String(), "-b", "2048", "-ub", "2048", "-fa", "off"}, of.options...)...)
			var got []float64
			for _, text := range texts {
				var want struct {
					Data []struct{ Embedding []float32 }
				}
				l.ask("/v1/embeddings", map[string]any{"input": text, "encoding_format": "float"}, &want)
				e, err := m.Embed(t.Context(), coppice.EmbedRequest{Prompt: text, Pooling: p})
				if err != nil || len(want.Data) != 1 || len(want.Data[0].Embedding) != len(e.Vector) {
					t.Fatalf("%.40q: %v, %d values against %d", text, err, len(e.Vector), len(want.Data))
				}
				got = append(got, cosine(e.Vector, want.Data[0].Embedding))
			}
			slices.Sort(got)
			t.Logf("%s, %v: %d texts, cosine at least %.7f, median %.7f", of.name, p, len(got), got[0], got[len(got)/2])
			if !(got[0] >= of.least) {
				t.Errorf("%s, %v: the lowest cosines are %v, want at least %v", of.name, p, got[:3], of.least)
			}
		}
		m.Close()
	}
}
