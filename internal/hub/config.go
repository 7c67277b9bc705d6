package hub

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Config says where models are and where they come from.
type Config struct {
	// Dir is the cache directory. It need not exist.
	Dir string

	// Endpoint is the hub's address. Default: DefaultEndpoint.
	Endpoint string

	// Token is sent to the endpoint, and to no other host. "" sends none.
	Token string

	// Attempts is how many times in a row a request may fail for a reason that passes (a
	// cut connection, status 429 or 5xx) without a byte gained. Default: 5.
	Attempts int

	// Wait is the time before the second attempt. It doubles up to maxWait. Default: 1s.
	Wait time.Duration

	// Stall is how long a download may give no byte before it counts as cut. Default: 30s.
	Stall time.Duration
}

// DefaultEndpoint is Hugging Face's hub.
const DefaultEndpoint = "https://huggingface.co"

// maxWait bounds the time between attempts, and what a hub may ask for by Retry-After.
const maxWait = 2 * time.Minute

// WithDefaults fills in what is not set.
func (c Config) WithDefaults() Config {
	if c.Endpoint == "" {
		c.Endpoint = DefaultEndpoint
	}
	c.Endpoint = strings.TrimRight(c.Endpoint, "/")
	if c.Attempts == 0 {
		c.Attempts = 5
	}
	if c.Wait == 0 {
		c.Wait = time.Second
	}
	if c.Stall == 0 {
		c.Stall = 30 * time.Second
	}
	return c
}

// Validate reports every field that can't be.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("hub: "+format, args...)) }
	if c.Dir == "" {
		bad("Dir is empty, want the cache directory")
	}
	if u, err := url.Parse(c.Endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		bad("Endpoint is no URL like %s", DefaultEndpoint) // not what it is: it may hold a secret
	}
	if strings.ContainsAny(c.Token, "\r\n\x00") {
		bad("Token has line breaks")
	}
	if c.Attempts < 1 {
		bad("Attempts is %d, want at least 1", c.Attempts)
	}
	if c.Wait < 0 || c.Stall < 0 {
		bad("Wait is %v and Stall %v, want more than 0", c.Wait, c.Stall)
	}
	return errors.Join(errs...)
}
