package mocker

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/internal/bounds"
)

// ErrConfig is wrapped by the errors of [Config.Validate] and [New].
var ErrConfig = errors.New("mocker: invalid config")

// Limits of a Config.
const (
	MaxBlocks      = 1 << 26
	MaxBlockTokens = 1 << 16
	MaxRunning     = 1 << 16 // most MaxSeqs
	MaxTokens      = 1 << 24 // of a request's prompt and output together, and most MaxBatchedTokens
	MaxQueue       = 1 << 24 // most MaxWaiting
)

// Config sizes a worker. The zero value works; the defaults are those of Dynamo's mocker
// of February 2026.
type Config struct {
	Blocks           int `default:"16384" min:"1" max:"1<<26"` // blocks of KV on the device. Default 16384
	BlockTokens      int `default:"64" min:"2" max:"1<<16"`    // tokens in a block, at least 2. Default 64
	MaxSeqs          int `default:"256" min:"1" max:"1<<16"`   // most running requests. Default 256
	MaxBatchedTokens int `default:"8192" min:"1" max:"1<<24"`  // most tokens in a pass, at least MaxSeqs. Default 8192
	MaxWaiting       int `default:"65536" min:"1" max:"1<<24"` // most waiting requests. Default 65536
}

// watermark is the share of the blocks that an admission keeps free.
const watermark = 0.01

// WithDefaults returns a copy with the defaults in place of zeros.
func (c Config) WithDefaults() Config { return bounds.Fill(c) }

// Validate reports all faults at once, by field and value, each wrapping
// ErrConfig. Zeros count as their defaults.
func (c Config) Validate() error {
	c = c.WithDefaults()
	err := bounds.CheckAs(ErrConfig, c)
	if c.MaxBatchedTokens < c.MaxSeqs {
		err = errors.Join(err, fmt.Errorf("%w: MaxBatchedTokens is %d, want at least MaxSeqs, %d: each decoding request takes a token",
			ErrConfig, c.MaxBatchedTokens, c.MaxSeqs))
	}
	return err
}
