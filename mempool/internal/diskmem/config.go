package diskmem

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/internal/record"
)

// Config configures a store. Dir, Identity and Bytes are required.
type Config struct {
	Dir          string // created if it does not exist
	Identity     mempool.Identity
	Sealer       *record.Sealer // if Identity.Sealed; else nil
	Bytes        int64          // most bytes of all slots, headers included
	SegmentBytes int64          `default:"256<<20" min:"1"` // size of a file of slots; room on the disk is reserved one file at a time
	// Shrink permits that records are dropped because Bytes is smaller than before. Without it, a
	// directory keeps room for what it holds.
	Shrink bool
	// Workers is the number of goroutines that read and write. An NVMe drive reaches its
	// bandwidth with a few concurrent transfers of 1 MiB; more of them only queue in the
	// drive.
	Workers int `default:"4" min:"1"`
	MaxOps  int `default:"256" min:"1"` // most open operations

	// Inject plants faults in tests.
	Inject *blockio.Injector
	now    func() time.Time // default time.Now
}

// WithDefaults returns c with defaults for the fields that are zero.
func (c Config) WithDefaults() Config {
	c = bounds.Fill(c)
	if c.now == nil {
		c.now = time.Now
	}
	return c
}

// Validate returns an error that names all invalid fields, or nil.
func (c *Config) Validate() error {
	errs := []error{errors.Join(c.Identity.Validate(), c.Sealer.Check(&c.Identity)), bounds.Check("diskmem", c)}
	if c.Dir == "" {
		errs = append(errs, errors.New("diskmem: Dir is empty"))
	}
	if errs[0] == nil {
		if f := record.FormatOf(&c.Identity, c.Sealer); c.Bytes < int64(f.SlotBytes()) {
			errs = append(errs, fmt.Errorf("diskmem: Bytes is %d, want at least %d, one extent", c.Bytes, f.SlotBytes()))
		}
	}
	return errors.Join(errs...)
}
