package e2e

import (
	"math"
	"testing"

	"github.com/openai/openai-go/v3"
)

// TestEmbeddings checks vectors of OpenAI's Go client: their number, order, length and size, and that a
// list gives what its texts give alone.
func TestEmbeddings(t *testing.T) {
	p := serve(t)
	ctx := within(t)
	texts := []string{"What is light?", "It is a wave."}
	both, err := p.client.Embeddings.New(ctx, openai.EmbeddingNewParams{Model: "nano", Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: texts}})
	if err != nil {
		t.Fatal(detail(err))
	}
	if len(both.Data) != 2 || both.Usage.PromptTokens == 0 || both.Usage.TotalTokens != both.Usage.PromptTokens || both.Model != "nano" {
		t.Fatalf("%d vectors, %+v", len(both.Data), both.Usage)
	}
	for i, text := range texts {
		one, err := p.client.Embeddings.New(ctx, openai.EmbeddingNewParams{Model: "nano", Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String(text)}, Dimensions: openai.Int(8)})
		if err != nil {
			t.Fatal(detail(err))
		}
		cut, whole, sum := one.Data[0].Embedding, both.Data[i].Embedding, 0.0
		for _, v := range cut {
			sum += v * v
		}
		if both.Data[i].Index != int64(i) || len(cut) != 8 || len(whole) <= 8 || math.Abs(sum-1) > 1e-5 || math.Abs(cut[0]*whole[1]-cut[1]*whole[0]) > 1e-6 {
			t.Errorf("%q: %d of %d values, length %v", text, len(cut), len(whole), sum)
		}
	}
}
