package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/coppice-llm/coppice/internal/terminal"
	"github.com/coppice-llm/coppice/kv"
)

// cacheExplainCmd is coppice cache explain.
type cacheExplainCmd struct {
	URL    string `name:"url" default:"http://127.0.0.1:8080" help:"URL of the server."`
	APIKey string `name:"api-key" env:"COPPICE_API_KEY" placeholder:"KEY" help:"API key of the server, if it needs one. The answer is for requests with this key."`

	Prompt  string     `arg:"" optional:"" help:"Text of the prompt."`
	Tokens  []kv.Token `placeholder:"1,2,3" help:"Token ids of the prompt, instead of a text."`
	Request string     `type:"path" placeholder:"FILE" help:"File with the body of a request to /v1/completions or /v1/chat/completions, instead of a prompt; - for standard input."`

	Salt         string `help:"cache_salt of the request."`
	PublicTokens int    `name:"public-tokens" default:"0" min:"0" help:"public_tokens of the request: how many of its first tokens requests with other salts may share."`
	JSON         bool   `name:"json" help:"Print the server's answer, which is JSON."`
}

// maxExplainBytes bounds the bytes read of a request and of an answer.
const maxExplainBytes = 64 << 20

// Run is called by kong.
func (c *cacheExplainCmd) Run(ctx context.Context) error {
	body, err := c.body()
	if err != nil {
		return err
	}
	to, err := newServerClient(c.URL, c.APIKey)
	if err != nil {
		return err
	}
	answer, err := to.send(ctx, http.MethodPost, "/v1/cache/explain", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if err := to.refused(answer); err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxExplainBytes))
	if err != nil {
		return fmt.Errorf("the answer ends early: %w", err)
	}
	var said struct{ Text string }
	if err := json.Unmarshal(text, &said); err != nil {
		return fmt.Errorf("the answer is not an explanation of coppice: %w", err)
	}
	if c.JSON {
		said.Text = string(text)
	}
	_, err = fmt.Fprintln(terminal.Out(), said.Text)
	return err
}

// body returns the body of the request to explain.
func (c *cacheExplainCmd) body() ([]byte, error) {
	given := 0
	for _, is := range []bool{c.Prompt != "", len(c.Tokens) > 0, c.Request != ""} {
		if is {
			given++
		}
	}
	if given != 1 {
		return nil, errors.New("give a prompt, --tokens or --request")
	}
	if c.Request != "" {
		if c.Salt != "" || c.PublicTokens != 0 {
			return nil, errors.New("--salt and --public-tokens are fields of the request in --request")
		}
		return c.read()
	}
	fields := map[string]any{"prompt": c.Prompt}
	if len(c.Tokens) > 0 {
		fields["prompt"] = c.Tokens
	}
	if c.Salt != "" {
		fields["cache_salt"] = c.Salt
	}
	if c.PublicTokens > 0 {
		fields["coppice"] = map[string]int{"public_tokens": c.PublicTokens}
	}
	return json.Marshal(fields)
}

// read returns the contents of the file --request.
func (c *cacheExplainCmd) read() ([]byte, error) {
	in := os.Stdin
	if c.Request != "-" {
		f, err := os.Open(c.Request)
		if err != nil {
			return nil, fmt.Errorf("--request: %w", err)
		}
		defer f.Close()
		in = f
	}
	body, err := io.ReadAll(io.LimitReader(in, maxExplainBytes))
	if err != nil {
		return nil, fmt.Errorf("--request: %w", err)
	}
	return body, nil
}
