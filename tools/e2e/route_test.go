package e2e

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// TestRoute checks that two servers behind a router look like one server to the official client, and
// that requests go to the server that has cached their prefix, per tenant.
func TestRoute(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("boss: very-secret-boss admin\nacme: very-secret-acme\nzeta: very-secret-zeta\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var workers []*process
	for _, name := range []string{"one", "two"} {
		workers = append(workers, serve(t, "--publish", "zmq://127.0.0.1:0", "--name", name, "--api-key-file", keys))
	}
	p := route(t, workers, "--api-key-file", keys)
	_, boss := p.as("very-secret-boss")
	type fleet struct {
		Prompts string
		Workers []struct {
			Name, State, Mode string
			Ranks             []struct {
				Held int `json:"index_blocks"`
			}
		}
	}
	known := func() (f fleet) {
		t.Helper()
		if err := boss.Get(t.Context(), "v1/fleet", nil, &f); err != nil {
			t.Fatal(detail(err))
		}
		return f
	}
	p.until("the router hears both workers and has their tokenizer", func() bool {
		f := known()
		whole := f.Prompts == "tokens" && len(f.Workers) == 2
		for _, w := range f.Workers {
			whole = whole && w.State == "healthy" && w.Mode == "events"
		}
		return whole
	})
	acme, _ := p.as("very-secret-acme")
	zeta, _ := p.as("very-secret-zeta")
	ask := openai.ChatCompletionNewParams{
		Model:    "nano",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(strings.Repeat("What is light, and what is it for? ", 20))},
		Seed:     openai.Int(1), MaxCompletionTokens: openai.Int(8),
	}
	var raw *http.Response
	first, err := acme.Chat.Completions.New(t.Context(), ask, option.WithResponseInto(&raw))
	if err != nil {
		t.Fatal(err)
	}
	home := raw.Header.Get("X-Coppice-Worker")
	if home != "one" && home != "two" || first.Usage.PromptTokensDetails.CachedTokens != 0 {
		t.Fatalf("answered by %q: %s", home, first.RawJSON())
	}
	p.until("the router knows what "+home+" has", func() bool {
		for _, w := range known().Workers {
			if w.Name == home {
				return len(w.Ranks) == 1 && w.Ranks[0].Held > 0
			}
		}
		return false
	})
	again, err := acme.Chat.Completions.New(t.Context(), ask, option.WithResponseInto(&raw))
	if err != nil {
		t.Fatal(err)
	}
	if raw.Header.Get("X-Coppice-Worker") != home || again.Usage.PromptTokensDetails.CachedTokens < first.Usage.PromptTokens-1 ||
		again.Choices[0].Message.Content != first.Choices[0].Message.Content {
		t.Errorf("answered by %q: %s, the first time %s", raw.Header.Get("X-Coppice-Worker"), again.RawJSON(), first.RawJSON())
	}
	other, err := zeta.Chat.Completions.New(t.Context(), ask, option.WithResponseInto(&raw))
	if err != nil {
		t.Fatal(err)
	}
	if other.Usage.PromptTokensDetails.CachedTokens != 0 || raw.Header.Get("X-Coppice-Overlap-Blocks") != "0" {
		t.Errorf("one tenant found what another one has: %s, %v", other.RawJSON(), raw.Header)
	}

	stream := acme.Chat.Completions.NewStreaming(t.Context(), ask)
	text := ""
	for stream.Next() {
		if c := stream.Current(); len(c.Choices) > 0 {
			text += c.Choices[0].Delta.Content
		}
	}
	if stream.Err() != nil || text != first.Choices[0].Message.Content {
		t.Errorf("streamed %q, %v, want %q", text, stream.Err(), first.Choices[0].Message.Content)
	}

	for want, change := range map[int]func(*openai.ChatCompletionNewParams){
		404: func(a *openai.ChatCompletionNewParams) { a.Model = "gpt-5" },
		400: func(a *openai.ChatCompletionNewParams) { a.Temperature = openai.Float(-1) },
	} {
		bad := ask
		change(&bad)
		_, err := acme.Chat.Completions.New(t.Context(), bad)
		if e := (*openai.Error)(nil); !errors.As(err, &e) || e.StatusCode != want || e.Message == "" {
			t.Errorf("want status %d: %v", want, err)
		}
	}
	stranger, _ := p.as("not-a-key")
	_, err = stranger.Models.List(t.Context())
	if e := (*openai.Error)(nil); !errors.As(err, &e) || e.StatusCode != 401 {
		t.Errorf("a stranger: %v", err)
	}
	models, err := acme.Models.List(t.Context())
	if err != nil || len(models.Data) != 1 || models.Data[0].ID != "nano" {
		t.Errorf("%+v, %v", models, err)
	}
}
