package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/bench/load"
	"github.com/coppice-llm/coppice/events/eventurl"
	"github.com/coppice-llm/coppice/internal/terminal"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/server/view"
)

// askFlags choose the running server that a command asks. Each command completes their help with the
// variables asked and key.
type askFlags struct {
	URL    string `name:"url" default:"${server}" placeholder:"${form}" help:"${asked}"`
	APIKey string `name:"api-key" env:"COPPICE_API_KEY" placeholder:"KEY" help:"API key ${key}"`
}

// client returns the client of the server.
func (f *askFlags) client() (*serverClient, error) {
	u, err := url.Parse(f.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User == nil && strings.Contains(f.URL, "@") {
		return nil, fmt.Errorf("--url is %q, want something as http://127.0.0.1:8080", eventurl.Redact(f.URL))
	}
	return &serverClient{url: strings.TrimRight(f.URL, "/"), key: f.APIKey, http: http.Client{Timeout: 10 * time.Second}}, nil
}

// serverClient asks a server.
type serverClient struct {
	url, key string
	http     http.Client
}

// maxStateBytes bounds the bytes read of an answer.
const maxStateBytes = 64 << 20

// snapshot gets the JSON document at a path, of type S. schema returns its schema number, which must be want.
func snapshot[S any](ctx context.Context, c *serverClient, path string, schema func(*S) int, want int) (*S, error) {
	s := new(S)
	if err := c.read(ctx, path, s); err != nil {
		return nil, err
	}
	if got := schema(s); got != want {
		return nil, fmt.Errorf("%s has snapshots of schema %d, want %d: use coppice top of the server's version", eventurl.Redact(c.url), got, want)
	}
	return s, nil
}

// errTopNothing means that the server has no such path.
var errTopNothing = errors.New("only servers of coppice serve and routers of coppice route can be looked at")

// read gets the JSON document at a path into into.
func (c *serverClient) read(ctx context.Context, path string, into any) error {
	answer, err := c.send(ctx, http.MethodGet, path, nil)
	if refusal, ok := errors.AsType[*serverRefusal](err); ok && refusal.status == http.StatusNotFound {
		return fmt.Errorf("%s has no %s: %w", eventurl.Redact(c.url), path, errTopNothing)
	}
	if err != nil {
		return err
	}
	defer answer.Close()
	if err := json.NewDecoder(io.LimitReader(answer, maxStateBytes)).Decode(into); err != nil {
		return fmt.Errorf("%s%s is not a snapshot of coppice: %w", eventurl.Redact(c.url), path, err)
	}
	return nil
}

// send sends a request, with a body in JSON unless that is nil, and returns the body of the answer, which
// the caller closes. If the status is not 200, it returns a serverRefusal.
func (c *serverClient) send(ctx context.Context, method, path string, body io.Reader) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err != nil {
		return nil, fmt.Errorf("--url: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	answer, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no answer (does coppice serve or route run there?): %w", err)
	}
	if answer.StatusCode == http.StatusOK {
		return answer.Body, nil
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 300))
	return nil, &serverRefusal{eventurl.Redact(c.url), answer.StatusCode, load.Said(text)}
}

// serverRefusal is the error for a status other than 200.
type serverRefusal struct {
	url    string
	status int
	said   string // the server's words
}

func (r *serverRefusal) Error() string {
	if r.status == http.StatusUnauthorized || r.status == http.StatusForbidden {
		return r.url + " refuses the key: give one with --api-key or COPPICE_API_KEY"
	}
	return fmt.Sprintf("%s answers %s: %s", r.url, load.StatusText(r.status), r.said)
}

// cacheStatCmd is coppice cache stat: of directories, or of the tiers of a running server.
type cacheStatCmd struct {
	Dir      string `arg:"" optional:"" type:"path" help:"Directory of --kv-disk or --kv-share, or one fingerprint's directory in it."`
	askFlags `kong:"set='server=',set='form=http://127.0.0.1:8080',set='asked=Print what the tiers of a running server hold, and how often they failed, by reason. Instead of a directory.',set='key=of that server, if it needs one.'"`
	JSON     bool `name:"json" help:"Print JSON."`

	KVKey sealFile `name:"kv-key" placeholder:"FILE" help:"File of secrets, as of coppice serve, to open sealed KV."`
}

// Run is called by kong.
func (c *cacheStatCmd) Run(ctx context.Context) error {
	switch {
	case c.Dir == "" && c.URL == "":
		return errors.New("give the directory that holds the KV, or the --url of a server")
	case c.Dir != "" && c.URL != "":
		return errors.New("give a directory or --url, not both")
	case c.URL != "":
		return c.server(ctx)
	}
	_, err := (&cacheDir{Dir: c.Dir, JSON: c.JSON, KVKey: c.KVKey}).stats(false, "")
	return err
}

// server prints the figures of a server's tiers below the device.
func (c *cacheStatCmd) server(ctx context.Context) error {
	from, err := c.client()
	if err != nil {
		return err
	}
	var figures struct{ Tiers []view.Tier }
	if err := from.read(ctx, "/v1/cache/stats", &figures); err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(terminal.Out()).Encode(figures.Tiers)
	}
	if len(figures.Tiers) == 0 {
		fmt.Fprintln(terminal.Out(), "the server has no tier below the device; its log names one that could not be opened")
	}
	for i := range figures.Tiers {
		printTier(terminal.Out(), &figures.Tiers[i])
	}
	return nil
}

func printTier(w io.Writer, t *view.Tier) {
	state := "works"
	if t.Failing > 0 {
		state = "is failing; the server's log has the cause"
	}
	fmt.Fprintf(w, "%s tier %s\n", topClean(t.Name), state)
	fmt.Fprintf(w, "  %d extents, %d of %d bytes, %d read, %d written\n", t.Extents, t.HeldBytes, t.CapacityBytes, t.Reads, t.Writes)
	fmt.Fprintf(w, "  %d moves failed, %d lost, %d late, %d busy, %d full, %d foreign, %d damaged, %d I/O errors\n",
		t.Errors, t.Lost, t.Late, t.Busy, t.Full, t.Foreign, t.Damaged, t.IOErrors)
}

// cacheExplainCmd is coppice cache explain.
type cacheExplainCmd struct {
	askFlags `set:"key=of the server, if it needs one. The answer is for requests with this key."`

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
	to, err := c.client()
	if err != nil {
		return err
	}
	answer, err := to.send(ctx, http.MethodPost, "/v1/cache/explain", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer answer.Close()
	text, err := io.ReadAll(io.LimitReader(answer, maxExplainBytes))
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
	ways := 0
	for _, is := range []bool{c.Prompt != "", len(c.Tokens) > 0, c.Request != ""} {
		if is {
			ways++
		}
	}
	if ways != 1 {
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
	if c.Request != "-" {
		return readFlagFile("--request", c.Request, maxExplainBytes)
	}
	body, err := io.ReadAll(io.LimitReader(os.Stdin, maxExplainBytes))
	if err != nil {
		return nil, fmt.Errorf("--request: %w", err)
	}
	return body, nil
}
