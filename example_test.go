package coppice_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/grammar/jsonschema"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/local"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/server"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Example opens a model and asks it, alone and for a batch. TestEmbedding runs it.
func Example() {
	ctx := context.Background()
	m, err := local.Open("path/to/model", local.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	question := []chat.Message{{Role: "user", Content: "What is light?"}}
	answer, err := m.Chat(ctx, question, coppice.ChatOptions{Request: coppice.Request{MaxTokens: 32, Sampling: m.Sampling}})
	fmt.Println(answer.Text, err)
	results, err := m.Batch(ctx, []coppice.Request{{Prompt: "Light is", MaxTokens: 8}, {Prompt: "Light was", MaxTokens: 8}})
	for _, r := range results {
		fmt.Println(r.Text, r.CachedTokens, "of", r.PromptTokens, "prompt tokens cached")
	}
	fmt.Println(err)
}

// openLocal opens the tests' model with a small pool.
func openLocal(cfg coppice.Config) *local.Model {
	m, err := local.Open(nano, local.Options{KVTokens: 4096, Node: cfg})
	if err != nil {
		panic(err)
	}
	return m
}

// A second turn, made of the tokens of the first, finds them in the cache.
func ExampleNode_Text() {
	m := openLocal(coppice.Config{})
	defer m.Close()
	var history []kv.Token
	for _, prompt := range []string{"What is light?", " And what is colour?"} {
		r, err := m.Text(context.Background(), coppice.Request{Tokens: history, Prompt: prompt, MaxTokens: 8, IgnoreEOS: true})
		if err != nil {
			panic(err)
		}
		fmt.Printf("%d prompt tokens, %d cached, %d output, ended by %v\n", r.PromptTokens, r.CachedTokens, r.OutputTokens, r.Reason)
		history = r.Tokens
	}
	// Output:
	// 12 prompt tokens, 0 cached, 8 output, ended by length
	// 32 prompt tokens, 19 cached, 8 output, ended by length
}

// The answer of a chat, piece by piece, from a system prompt that every conversation shares.
func ExampleNode_Chat() {
	m := openLocal(coppice.Config{})
	defer m.Close()
	ctx, opts := context.Background(), coppice.ChatOptions{Request: coppice.Request{MaxTokens: 4, IgnoreEOS: true}}
	system := chat.Message{Role: "system", Content: "Be brief, be exact, and answer in the words of Newton's Opticks."}
	for _, question := range []string{"What is light?", "What is colour?"} {
		r, err := m.Chat(ctx, []chat.Message{system, {Role: "user", Content: question}}, opts)
		if err != nil {
			panic(err)
		}
		fmt.Println(r.OutputTokens, "tokens, from the cache:", r.CachedTokens > 30)
	}
	req, err := m.ChatRequest([]chat.Message{system, {Role: "user", Content: "What is a prism?"}}, opts)
	if err != nil {
		panic(err)
	}
	for piece, err := range m.Generate(ctx, req) { // as it comes
		if err != nil {
			panic(err)
		}
		_ = piece.Text // what to print
	}
	// Output:
	// 4 tokens, from the cache: false
	// 4 tokens, from the cache: true
}

// A JSON schema constrains the text to the values that it describes.
func ExampleFormat() {
	m := openLocal(coppice.Config{})
	defer m.Close()
	schema := `{"type": "object", "properties": {"colour": {"enum": ["red", "green", "blue"]}}, "required": ["colour"], "additionalProperties": false}`
	r, err := m.Text(context.Background(), coppice.Request{Prompt: "A colour: ", MaxTokens: 64, Format: coppice.Format{Language: jsonschema.Schema, Text: schema}})
	if err != nil {
		panic(err)
	}
	var answer struct{ Colour string }
	err = json.Unmarshal([]byte(r.Text), &answer)
	fmt.Println(slices.Contains([]string{"red", "green", "blue"}, answer.Colour), err, r.Reason)
	// Output:
	// true <nil> stop
}

// Three outputs of one prompt, which is computed once.
func ExampleNode_Generate_samples() {
	m := openLocal(coppice.Config{})
	defer m.Close()
	texts := make([]string, 3)
	for piece, err := range m.Generate(context.Background(), coppice.Request{
		Prompt: "What is light?", MaxTokens: 8, IgnoreEOS: true, Samples: len(texts), Timeout: time.Minute,
		Sampling: engine.SamplingParams{Temperature: 1, Seed: 4},
	}) {
		if err != nil {
			panic(err)
		}
		texts[piece.Sample] += piece.Text
		if e := piece.Ending; e != nil {
			fmt.Printf("sample %d: %d of %d prompt tokens cached, %d output\n", piece.Sample, e.CachedTokens, e.PromptTokens, e.OutputTokens)
		}
	}
	// Unordered output:
	// sample 0: 0 of 12 prompt tokens cached, 8 output
	// sample 1: 11 of 12 prompt tokens cached, 8 output
	// sample 2: 11 of 12 prompt tokens cached, 8 output
}

// Tenants have fair shares of the device under the policy DLPM, by weight, limits of their own,
// and no part of their cache in common.
func ExampleRequest_tenants() {
	m := openLocal(coppice.Config{Scheduler: scheduler.Config{
		Policy:  scheduler.DLPM,
		Tenant:  scheduler.TenantConfig{MaxQueued: 100},
		Tenants: map[string]scheduler.TenantConfig{"acme": {Weight: 3}},
	}})
	defer m.Close()
	for _, tenant := range []string{"acme", "acme", "ops"} {
		r, err := m.Text(context.Background(), coppice.Request{
			Prompt: "What is light?", MaxTokens: 4, IgnoreEOS: true, Tenant: tenant, Namespace: kv.Namespace{Salt: tenant}, QueueTimeout: time.Minute,
		})
		if err != nil {
			panic(err)
		}
		fmt.Println(tenant, r.CachedTokens)
	}
	// Output:
	// acme 0
	// acme 11
	// ops 0
}

// Events report what the cache stores and removes, block by block.
func ExampleNode_Events() {
	m := openLocal(coppice.Config{Scheduler: scheduler.Config{Events: true, BlockTokens: 16}})
	defer m.Close()
	if _, err := m.Text(context.Background(), coppice.Request{Prompt: strings.Repeat("light ", 20), MaxTokens: 2}); err != nil {
		panic(err)
	}
	for event, err := range m.Events(context.Background(), 0) {
		if err != nil {
			panic(err)
		}
		fmt.Println(event.Seq, event.Kind, event.Tier, len(event.Blocks) > 0)
		break
	}
	// Output:
	// 0 stored device true
}

// The OpenAI API under a path of one's own server.
func Example_server() {
	m := openLocal(coppice.Config{})
	defer m.Close()
	api, err := server.New(server.Config{Node: m.Node, Model: "nano", Template: m.Template()})
	if err != nil {
		panic(err)
	}
	defer api.Close()
	mux := http.NewServeMux()
	mux.Handle("/llm/", http.StripPrefix("/llm", api))
	mux.HandleFunc("/hello", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })
	site := httptest.NewServer(mux)
	defer site.Close()

	body := `{"messages": [{"role": "user", "content": "What is light?"}], "max_tokens": 4, "ignore_eos": true}`
	resp, err := http.Post(site.URL+"/llm/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Usage struct {
			Output int `json:"completion_tokens"`
		} `json:"usage"`
	}
	fmt.Println(resp.StatusCode, json.NewDecoder(resp.Body).Decode(&answer), answer.Usage.Output)
	// Output:
	// 200 <nil> 4
}

// A handle on a running request, for callers that can't range over it.
func ExampleNode_Stream() {
	m := openLocal(coppice.Config{})
	defer m.Close()
	ctx := context.Background()
	stream, err := m.Stream(coppice.Request{Prompt: "What is light?", MaxTokens: 1000, IgnoreEOS: true})
	if err != nil {
		panic(err)
	}
	stream.Abort(nil)
	for {
		piece, err := stream.Next(ctx)
		if err == io.EOF {
			break
		}
		if piece.Ending != nil {
			fmt.Println(piece.Ending.Reason, errors.Is(err, coppice.ErrAborted))
		}
	}
	// Output:
	// abort true
}
