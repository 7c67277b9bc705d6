package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coppice-llm/coppice/internal/terminal"
	"github.com/coppice-llm/coppice/openai"
)

// ErrUnreachable is wrapped by the error of [Dial] if no server answers.
var ErrUnreachable = errors.New("load: no server answers")

// ClientConfig identifies a server and holds the options of requests to it.
type ClientConfig struct {
	URL      string // such as http://127.0.0.1:8080; with or without /v1 at the end
	Endpoint Endpoint
	Model    string // default: the first of /v1/models
	APIKey   string // sent as a bearer token
	Options
	// Transport carries the requests. Default: the client's own, with as many
	// connections as concurrent requests.
	Transport http.RoundTripper
}

// Client sends requests to one server and measures their answers. It is safe for
// concurrent use.
type Client struct {
	cfg     ClientConfig
	base    string
	shown   string // base without credentials, for messages
	http    http.Client
	own     *http.Transport // nil if Transport was given
	scratch sync.Pool       // *scratch
}

// dialTimeout is how long Dial waits for /v1/models.
const dialTimeout = 30 * time.Second

// mostBody is the most bytes read of an answer that is not a stream.
const mostBody = 1 << 20

// Dial makes a client and asks the server for its models. If no server answers, the
// error wraps [ErrUnreachable] and explains how to start one. If cfg.Model is set, any
// answer but 401 is accepted. A bad URL and extra fields that are not JSON are errors.
func Dial(ctx context.Context, cfg ClientConfig) (*Client, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User == nil && strings.Contains(cfg.URL, "@") {
		return nil, fmt.Errorf("load: URL is %q, want one as http://127.0.0.1:8080", shown(cfg.URL))
	}
	for name, value := range cfg.Extra {
		if !json.Valid(value) {
			return nil, fmt.Errorf("load: extra field %q is not JSON: %s", name, terminal.Quote(value))
		}
	}
	if t := cfg.Temperature; t != nil && (math.IsNaN(*t) || math.IsInf(*t, 0)) {
		return nil, fmt.Errorf("load: Temperature is %v, want a finite number", *t)
	}
	c := &Client{cfg: cfg, base: strings.TrimSuffix(strings.TrimSuffix(cfg.URL, "/"), "/v1")}
	c.shown = shown(c.base)
	c.scratch.New = func() any { return newScratch() }
	c.http.Transport = cfg.Transport
	if cfg.Transport == nil {
		c.own = http.DefaultTransport.(*http.Transport).Clone()
		c.own.MaxIdleConns, c.own.MaxIdleConnsPerHost, c.own.DisableCompression = 0, 1<<16, true
		c.http.Transport = c.own
	}
	if err := c.models(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// shown returns a URL without its user and password.
func shown(text string) string {
	at := strings.LastIndexByte(text, '@')
	if at < 0 {
		return text
	}
	return text[:strings.Index(text[:at], "://")+1] + "//(secret)" + text[at:]
}

// Model returns the model named in requests.
func (c *Client) Model() string { return c.cfg.Model }

// Close closes the idle connections of the client's own transport.
func (c *Client) Close() {
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
}

// models asks for /v1/models and takes the first model, if none is configured.
func (c *Client) models(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, fmt.Errorf("no answer in %v", dialTimeout))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/v1/models", nil)
	if err != nil {
		return fmt.Errorf("load: URL is %q: %w", c.shown, err)
	}
	c.authorise(req)
	resp, err := c.http.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		if errors.Is(err, context.Canceled) {
			return err
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			err = syscall.ECONNREFUSED
		}
		return fmt.Errorf("%w at %s: %w: start one, as with coppice serve --model DIR, or give its address with --url", ErrUnreachable, c.shown, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostBody))
	switch {
	case c.cfg.Model != "" && resp.StatusCode != http.StatusUnauthorized:
		return nil
	case err != nil:
		return fmt.Errorf("load: reading %s/v1/models: %w", c.shown, err)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("load: %s/v1/models: %s%s: %s", c.shown, StatusText(resp.StatusCode), hint(resp.StatusCode), Said(body))
	}
	var list openai.Models
	if err := json.Unmarshal(body, &list); err != nil {
		return fmt.Errorf("load: %s/v1/models is no list of models: is it an OpenAI-compatible server? %w: %s",
			c.shown, err, terminal.Quote(body))
	}
	if len(list.Data) == 0 || list.Data[0].ID == "" {
		return fmt.Errorf("load: the server at %s lists no model: load one there, or name one with --model", c.shown)
	}
	c.cfg.Model = list.Data[0].ID
	return nil
}

func (c *Client) authorise(req *http.Request) {
	if c.cfg.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+c.cfg.APIKey)
	}
}

// hint returns advice about a status, for an error message; "" if there is none.
func hint(status int) string {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return " (give a key with --api-key)"
	case http.StatusNotFound:
		return " (is the address right, and the model's name?)"
	}
	return ""
}
