package card

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/internal/bounds"
)

// Path is the path at which a server returns its card.
const Path = "/v1/worker"

// TokenizerPath is the path of a worker's tokenizer, a bundle of package events/bundle.
const TokenizerPath = Path + "/tokenizer"

// MaxBytes bounds the JSON of a card.
const MaxBytes = 64 << 10

// MaxModels bounds the models of one card.
const MaxModels = 256

// maxName is the longest name, in bytes.
const maxName = 128

// Card is a worker's description of itself. A zero field means unknown; a worker with events
// must set BlockTokens.
type Card struct {
	// Name of the worker, unique in the fleet. A configured name stays the same after a restart.
	// It must be one token of a NATS subject: no dots, blanks, "*", ">" or "/".
	Name string `json:"name"`
	// URL of its HTTP interface, http://host:port. A reader that fetched the card from a URL may
	// use that one instead.
	URL    string   `json:"url,omitempty"`
	Models []string `json:"models"`
	// Pool is the worker's group, for routers with pools; "": none.
	Pool string `json:"pool,omitempty"`
	// Keyed says that the worker requires API keys; the tenant of each key has cached prefixes
	// of its own.
	Keyed bool `json:"keyed,omitempty"`

	BlockTokens int `json:"block_tokens,omitempty" min:"0" max:"1<<40"` // tokens per block in its events
	PoolTokens  int `json:"pool_tokens,omitempty" min:"0" max:"1<<40"`  // size of its KV pool
	// HitTokens is the number of tokens of whose multiples the worker reuses cached prefixes, never a prompt's last token.
	// 0: it reuses cached tokens one by one. See router.WorkerSpec.
	HitTokens int `json:"hit_tokens,omitempty" min:"0" max:"1<<30"`
	// StepTokens is the most prompt tokens per step; vLLM's max_num_batched_tokens.
	StepTokens int `json:"step_tokens,omitempty" min:"0" max:"1<<40"`
	// ChunkTokens is the most prompt tokens that one long prompt takes of a step while other
	// requests decode; SGLang's chunked_prefill_size.
	ChunkTokens    int `json:"chunk_tokens,omitempty" min:"0" max:"1<<40"`
	MaxRunning     int `json:"max_running,omitempty" min:"0" max:"1<<40"`      // most concurrent requests
	MaxModelTokens int `json:"max_model_tokens,omitempty" min:"0" max:"1<<40"` // most tokens of one request, prompt and output

	// Tokenizer is the digest of the bundle at TokenizerPath; "": none is offered.
	Tokenizer string `json:"tokenizer,omitempty"`

	// ControlTokens is the worker's treatment of control tokens in callers' messages: "allow"
	// (or ""), "refuse" or "text", as in coppice serve --control-tokens.
	ControlTokens string `json:"control_tokens,omitempty"`

	// ToolsPrompt is the worker's treatment of tools that its chat template does not print: "auto", "none", or "template"
	// (or "": other servers print nothing either), as in coppice serve --tools-prompt.
	ToolsPrompt string `json:"tools_prompt,omitempty"`

	// Epoch distinguishes this process from its predecessors of the same name: later is higher.
	Epoch uint64 `json:"epoch,omitempty"`

	ZMQ  *ZMQ  `json:"zmq,omitempty"`
	NATS *NATS `json:"nats,omitempty"`
	// Profile is the measured cost of its steps, if known.
	Profile *Profile `json:"profile,omitempty"`
}

// ZMQ holds the ports of a worker's event sockets, at the host of its URL.
type ZMQ struct {
	Port       int    `json:"port" min:"1" max:"65535"`
	ReplayPort int    `json:"replay_port,omitempty" min:"0" max:"65535"` // 0: none
	Topic      string `json:"topic,omitempty"`
}

// NATS says that the worker's events are on NATS, where the worker is called by its Name.
type NATS struct {
	Prefix string `json:"prefix,omitempty"`
}

// Profile holds costs in seconds, as in router.Profile.
type Profile struct {
	Step  float64 `json:"step" min:"0" max:"1000"`
	Token float64 `json:"token" min:"0" max:"1000"`
	Pair  float64 `json:"pair" min:"0" max:"1000"`
	Row   float64 `json:"row" min:"0" max:"1000"`
	KV    float64 `json:"kv" min:"0" max:"1000"`
}

// ErrInvalid is wrapped by all errors of this package.
var ErrInvalid = errors.New("card: invalid")

// ID returns the worker's number in indexes and routers: XXH3-64 of its name, never 0.
func (c *Card) ID() uint64 { return IDOf(c.Name) }

// IDOf returns the number of the worker with this name.
func IDOf(name string) uint64 {
	if id := xxh3.HashString(name); id != 0 {
		return id
	}
	return 1
}

// Validate reports all faults at once, by field and value. They wrap ErrInvalid.
func (c *Card) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...))
	}
	if err := CheckName(c.Name); err != nil {
		errs = append(errs, err)
	}
	if c.URL != "" {
		u, err := url.Parse(c.URL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			bad("url is %.80q, want http://host:port", c.URL)
		}
	}
	if c.Pool != "" {
		if err := CheckPool(c.Pool); err != nil {
			errs = append(errs, err)
		}
	}
	if len(c.Models) > MaxModels {
		bad("models has %d names, want at most %d", len(c.Models), MaxModels)
	}
	if len(c.ControlTokens) > maxName {
		bad("control_tokens has %d bytes, want at most %d", len(c.ControlTokens), maxName)
	}
	if len(c.ToolsPrompt) > maxName {
		bad("tools_prompt has %d bytes, want at most %d", len(c.ToolsPrompt), maxName)
	}
	if len(c.Tokenizer) > maxName {
		bad("tokenizer has %d bytes, want a digest of at most %d", len(c.Tokenizer), maxName)
	}
	errs = append(errs, bounds.CheckAs(ErrInvalid, c))
	if (c.ZMQ != nil || c.NATS != nil) && c.BlockTokens == 0 {
		bad("block_tokens is 0, want the block size of the events")
	}
	if c.ZMQ != nil {
		errs = append(errs, bounds.CheckAs(fmt.Errorf("%w: zmq", ErrInvalid), c.ZMQ))
	}
	if c.Profile != nil {
		errs = append(errs, bounds.CheckAs(fmt.Errorf("%w: profile", ErrInvalid), c.Profile))
	}
	return errors.Join(errs...)
}

// NameOf makes a name of text, such as a host with its port. It replaces characters that no name
// has by hyphens. Of a text that is too long it keeps the end.
func NameOf(text string) string {
	name := strings.Map(func(r rune) rune {
		if r <= ' ' || r >= 0x7f || strings.ContainsRune(`.:*>/\[]`, r) {
			return '-'
		}
		return r
	}, text)
	return name[max(0, len(name)-maxName):]
}

// CheckName returns an error if name can't be the name of a worker, else nil.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: name is empty, give the worker a unique one", ErrInvalid)
	case len(name) > maxName:
		return fmt.Errorf("%w: name has %d bytes, want at most %d", ErrInvalid, len(name), maxName)
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(".*>/\\", r) }):
		return fmt.Errorf("%w: name is %q, want no blanks, dots, slashes, backslashes, * or >, in ASCII", ErrInvalid, name)
	}
	return nil
}

// CheckPool returns an error if name can't be the name of a pool, else nil. Dynamo's namespaces
// are valid names.
func CheckPool(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the pool's name is empty", ErrInvalid)
	case len(name) > maxName:
		return fmt.Errorf("%w: the pool's name has %d bytes, want at most %d", ErrInvalid, len(name), maxName)
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '"' || r == '\\' }):
		return fmt.Errorf("%w: the pool's name is %q, want ASCII without blanks, quotes and backslashes", ErrInvalid, name)
	}
	return nil
}

// Append appends the card as JSON to dst. It panics on a card that Validate refuses.
func (c *Card) Append(dst []byte) []byte {
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // a float that is not finite, which Validate refuses
	}
	return append(dst, text...)
}

// Parse decodes and validates a card. Unknown keys are ignored: they may be from a later
// version. The error wraps ErrInvalid.
func Parse(text []byte) (*Card, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("%w: %d bytes, want at most %d", ErrInvalid, len(text), MaxBytes)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	c := &Card{}
	if err := d.Decode(c); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%w: there is text after the object", ErrInvalid)
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return c, nil
}
