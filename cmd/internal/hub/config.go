package hub

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/internal/bounds"
)

// Config configures a Hub: the cache directory and the access to the hub.
type Config struct {
	// Dir is the cache directory. It need not exist.
	Dir string

	// Endpoint is the hub's address. Default: Hugging Face's hub.
	Endpoint string `default:"https://huggingface.co"`

	// Token is sent to the endpoint only. "": none is sent.
	Token string

	// Attempts is the number of consecutive requests that may fail for a temporary reason: status
	// 408, 429 or 5xx, or in a download also a lost connection. A request that receives bytes of
	// a file does not count. Default: 5.
	Attempts int `default:"5" min:"1"`

	// Wait is the time before the second attempt. Before each further attempt it doubles, up to 2
	// minutes. Default: 1s.
	Wait time.Duration `default:"1s" min:"0s"`

	// Stall is the time without a byte after which a download counts as lost, and the list of a
	// repository's files too. The list may take ten times as long in all. Default: 30s.
	Stall time.Duration `default:"30s" min:"0s"`
}

// maxWait bounds the time between attempts, and the time that Retry-After may request.
const maxWait = 2 * time.Minute

// WithDefaults returns a copy with defaults for the zero fields.
func (c Config) WithDefaults() Config {
	c = bounds.Fill(c)
	c.Endpoint = strings.TrimRight(c.Endpoint, "/")
	return c
}

// Validate reports every invalid field.
func (c Config) Validate() error {
	errs := []error{bounds.Check("hub", c)}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("hub: "+format, args...)) }
	if c.Dir == "" {
		bad("Dir is empty, want the cache directory")
	}
	if u, err := url.Parse(c.Endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		bad("Endpoint is no URL like https://huggingface.co") // without the value: it may hold a secret
	}
	if strings.ContainsAny(c.Token, "\r\n\x00") {
		bad("Token has line breaks")
	}
	return errors.Join(errs...)
}
