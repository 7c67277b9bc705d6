package hub

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/internal/bounds"
)

// Config says where models are and where they come from.
type Config struct {
	// Dir is the cache directory. It need not exist.
	Dir string

	// Endpoint is the hub's address. Default: Hugging Face's hub.
	Endpoint string `default:"https://huggingface.co"`

	// Token is sent to the endpoint, and to no other host. "" sends none.
	Token string

	// Attempts is how many times in a row a request may fail for a reason that passes (a
	// cut connection, status 429 or 5xx) without a byte gained. Default: 5.
	Attempts int `default:"5" min:"1"`

	// Wait is the time before the second attempt. It doubles up to maxWait. Default: 1s.
	Wait time.Duration `default:"1s" min:"0s"`

	// Stall is how long a download may give no byte before it counts as cut. Default: 30s.
	Stall time.Duration `default:"30s" min:"0s"`
}

// maxWait bounds the time between attempts, and what a hub may ask for by Retry-After.
const maxWait = 2 * time.Minute

// WithDefaults fills in what is not set.
func (c Config) WithDefaults() Config {
	c = bounds.Fill(c)
	c.Endpoint = strings.TrimRight(c.Endpoint, "/")
	return c
}

// Validate reports every field that can't be.
func (c Config) Validate() error {
	errs := []error{bounds.Check("hub", c)}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("hub: "+format, args...)) }
	if c.Dir == "" {
		bad("Dir is empty, want the cache directory")
	}
	if u, err := url.Parse(c.Endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		bad("Endpoint is no URL like https://huggingface.co") // not what it is: it may hold a secret
	}
	if strings.ContainsAny(c.Token, "\r\n\x00") {
		bad("Token has line breaks")
	}
	return errors.Join(errs...)
}
