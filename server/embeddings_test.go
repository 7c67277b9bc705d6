package server

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/kv"
)

// embedded is an answer of /v1/embeddings, with each vector as it came.
type embedded struct {
	Object, Model string
	Data          []struct {
		Object    string
		Index     int
		Embedding json.RawMessage
	}
	Usage struct {
		Prompt  int `json:"prompt_tokens"`
		Total   int `json:"total_tokens"`
		Details struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
}

// vector returns vector i, from either form.
func (e embedded) vector(t *testing.T, i int) (v []float32) {
	t.Helper()
	var text string
	if raw := e.Data[i].Embedding; json.Unmarshal(raw, &v) == nil {
		return v
	} else if err := json.Unmarshal(raw, &text); err != nil {
		t.Fatalf("%s", raw)
	}
	bytes, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(bytes)%4 != 0 {
		t.Fatalf("%q: %v", text, err)
	}
	for len(bytes) > 0 {
		v = append(v, math.Float32frombits(binary.LittleEndian.Uint32(bytes)))
		bytes = bytes[4:]
	}
	return v
}

func (b *bed) embeddings(body string) (e embedded) {
	b.Helper()
	a := b.do("POST", "/v1/embeddings", body)
	if a.StatusCode != 200 {
		b.Fatalf("%s: %d %s", body, a.StatusCode, a.body)
	}
	if err := json.Unmarshal(a.body, &e); err != nil {
		b.Fatal(err)
	}
	if e.Object != "list" || e.Model != "nano" || e.Usage.Total != e.Usage.Prompt {
		b.Errorf("%s: %+v", body, e)
	}
	for i := range e.Data {
		if e.Data[i].Object != "embedding" || e.Data[i].Index != i {
			b.Errorf("%s: entry %d is %+v", body, i, e.Data[i])
		}
	}
	return e
}

// TestEmbeddings covers texts and token ids, alone and in lists, in both encodings, cut and raw, with the
// tokens that were cached.
func TestEmbeddings(t *testing.T) {
	b := start(t, setup{})
	size := b.node.Info().HiddenSize
	one := b.embeddings(`{"input":"What is light? It is a wave.","model":"nano","user":"u"}`)
	want := one.vector(t, 0)
	if len(one.Data) != 1 || len(want) != size || one.Usage.Prompt == 0 || one.Usage.Details.Cached != 0 {
		t.Fatalf("%+v", one.Usage)
	}
	node, err := b.node.Embed(t.Context(), coppice.EmbedRequest{Prompt: "What is light? It is a wave."})
	if err != nil || !slices.Equal(node.Vector, want) {
		t.Errorf("the node's own embedding differs: %v", err)
	}
	ids := strings.ReplaceAll(fmt.Sprint(node.Tokens), " ", ",")
	for _, body := range []string{
		`{"input":"What is light? It is a wave.","encoding_format":"base64"}`, `{"input":["What is light? It is a wave."]}`, `{"input":` + ids + `}`, `{"input":[` + ids + `]}`,
	} {
		e := b.embeddings(body)
		if !slices.Equal(e.vector(t, 0), want) || e.Usage.Details.Cached != e.Usage.Prompt-1 {
			t.Errorf("%s: %+v", body, e.Usage)
		}
	}
	cut := b.embeddings(`{"input":"What is light? It is a wave.","dimensions":8,"normalize":false}`).vector(t, 0)
	length := 0.0
	for _, v := range cut {
		length += float64(v) * float64(v)
	}
	if len(cut) != 8 || math.Abs(length-1) < 1e-3 {
		t.Errorf("8 raw values have the length %v", length)
	}
	salted := b.embeddings(`{"input":"What is light? It is a wave.","cache_salt":"s"}`)
	if !slices.Equal(salted.vector(t, 0), want) || salted.Usage.Details.Cached != 0 {
		t.Errorf("with a salt: %+v", salted.Usage)
	}
}

// TestManyEmbeddings sends more inputs than the node has at a time, in one request: each gets its own
// vector, and the tokens of all are counted, in the answer and in the metrics.
func TestManyEmbeddings(t *testing.T) {
	b := start(t, setup{Server: Config{MaxInputs: 100}, Sim: &sim.Config{}})
	var inputs []string
	var prompts [][]kv.Token
	for i := range 3*inputsAtOnce + 1 {
		prompts = append(prompts, []kv.Token{kv.Token(i), 7, kv.Token(i + 1)})
		inputs = append(inputs, fmt.Sprintf("[%d,7,%d]", i, i+1))
	}
	e := b.embeddings(`{"input":[` + strings.Join(inputs, ",") + `],"normalize":false}`)
	if len(e.Data) != len(inputs) || e.Usage.Prompt != 3*len(inputs) {
		t.Fatalf("%d vectors, %+v", len(e.Data), e.Usage)
	}
	for i := range inputs {
		if !slices.Equal(e.vector(t, i), b.sim.ExpectHidden(prompts[i], engine.HiddenLast)) {
			t.Errorf("vector %d is another one", i)
		}
	}
	if !strings.Contains(b.metricsText(), fmt.Sprintf("\ncoppice_prompt_tokens_total{model_name=\"nano\"} %d\n", 3*len(inputs))) {
		t.Errorf("the metrics count other prompt tokens: %s", b.metricsText())
	}
	b.refused("POST", "/v1/embeddings", `{"input":[`+strings.Join(append(inputs, inputs...), ",")+`]}`, 400, "too_many_inputs")
	b.quiet()
}
