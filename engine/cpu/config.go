package cpu

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"

	"github.com/coppice-llm/coppice/engine/internal/intake"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
)

// Config sizes a backend. Pages or KVTokens is required; zero in any other field means its
// default, which the field's comment names.
type Config struct {
	PageTokens int `default:"16" min:"1" max:"256" pow2:""` // tokens per page, a power of two up to 256; default 16
	Pages      int `min:"0" max:"1<<30"`                    // pages of the pool
	KVTokens   int // smallest capacity of the pool in tokens; used if Pages is 0
	MaxSlots   int `default:"64" min:"1" max:"1<<16"`  // slots are in [0, MaxSlots); default 64
	MaxRows    int `default:"64" min:"1" max:"1<<12"`  // rows per batch; default 64
	MaxTokens  int `default:"512" min:"1" max:"1<<16"` // tokens per batch (vLLM: max_num_batched_tokens); default 512
	// MaxInflight is how many batches may be pending; default 2: one runs while the next is planned.
	MaxInflight int `default:"2" min:"2" max:"64"`
	// MaxMoves is how many moves of pages may be pending; default 64.
	MaxMoves int `default:"64" min:"1" max:"1<<16"`
	Threads  int `min:"1" max:"1024"` // goroutines that compute; default GOMAXPROCS
	// KVType is the stored type of K and V: F32, F16, BF16 or Q8_0; default F32. Q8_0 needs a head
	// dim that is a multiple of 32.
	KVType kv.DType
	// ISA forces a path of the kernels. If it is empty, Open takes the path named by the
	// environment variable COPPICE_CPU, else the fastest one that the machine has.
	ISA ISA
	// Log receives a warning if Open does not take the fastest path, because SelfTest found a fault in
	// it. Default: nothing is logged.
	Log *slog.Logger

	widen bool // widen quantised weights to f32 when packing, for tests
}

// WithDefaults returns c with every zero field except Pages and KVTokens set to its default,
// and with Pages, if zero, computed from KVTokens.
func (c Config) WithDefaults() Config {
	c = bounds.Fill(c)
	c.Pages = intake.PoolPages(c.Pages, c.KVTokens, c.PageTokens)
	c.Threads = cmp.Or(c.Threads, runtime.GOMAXPROCS(0))
	return c
}

// maxMasks is the number of grammar masks that the backend keeps: one for each row in flight, and
// at least 256, so that masks which are used repeatedly need not be set again.
func (c *Config) maxMasks() int { return max(c.MaxRows*c.MaxInflight, 256) }

// maxDrafts is the most drafts of a row. Verifying them takes as long as a prompt chunk of that
// length, and few outputs are that predictable.
func (c *Config) maxDrafts() int { return min(64, c.MaxTokens-1) }

// headRows is the number of positions whose logits are computed at a time. A row with the most
// drafts fits, so that the head's weights are read once for all its positions.
func (c *Config) headRows() int { return max(c.MaxRows, 1+c.maxDrafts()) }

// Validate returns an error that names every invalid field with its value, or nil. Call it on
// the result of WithDefaults.
func (c Config) Validate() error {
	errs := []error{bounds.Check("cpu", c)}
	if c.Pages == 0 {
		errs = append(errs, errors.New("cpu: Pages and KVTokens are 0, set one of them"))
	}
	if !slices.Contains(kvTypes, c.KVType) {
		errs = append(errs, fmt.Errorf("cpu: KVType is %v, want one of %v", c.KVType, kvTypes))
	}
	if isa := c.ISA; isa != "" {
		if err := isa.UnmarshalText([]byte(isa)); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
