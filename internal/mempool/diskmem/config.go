package diskmem

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/internal/mempool/blockio"
	"github.com/coppice-llm/coppice/mempool"
)

// Defaults of a [Config]. An NVMe drive reaches its bandwidth with a few concurrent transfers of
// 1 MiB; more of them only queue in the drive.
const (
	DefaultWorkers      = 4
	DefaultMaxOps       = 256
	DefaultSegmentBytes = 256 << 20
)

// Config configures a store. Dir, Identity and Bytes are required.
type Config struct {
	Dir          string // created if it does not exist
	Identity     mempool.Identity
	Bytes        int64 // most bytes of all slots, headers included
	SegmentBytes int64 // size of a file of slots; room on the disk is reserved one file at a time
	Workers      int   // goroutines that read and write
	MaxOps       int   // most open operations

	// Inject plants faults in tests.
	Inject *blockio.Injector
}

// WithDefaults returns c with defaults for the fields that are zero.
func (c Config) WithDefaults() Config {
	if c.SegmentBytes == 0 {
		c.SegmentBytes = DefaultSegmentBytes
	}
	if c.Workers == 0 {
		c.Workers = DefaultWorkers
	}
	if c.MaxOps == 0 {
		c.MaxOps = DefaultMaxOps
	}
	return c
}

// Validate returns an error that names all invalid fields, or nil.
func (c *Config) Validate() error {
	errs := []error{c.Identity.Validate()}
	if c.Dir == "" {
		errs = append(errs, errors.New("diskmem: Dir is empty"))
	}
	if c.Workers < 1 || c.MaxOps < 1 || c.SegmentBytes < 1 {
		errs = append(errs, fmt.Errorf("diskmem: Workers is %d, MaxOps %d, SegmentBytes %d, want at least 1", c.Workers, c.MaxOps, c.SegmentBytes))
	}
	if errs[0] == nil {
		if f := c.format(); c.Bytes < int64(f.SlotBytes()) {
			errs = append(errs, fmt.Errorf("diskmem: Bytes is %d, want at least %d, one extent", c.Bytes, f.SlotBytes()))
		}
	}
	return errors.Join(errs...)
}

func (c *Config) format() mempool.Format {
	return mempool.Format{Fingerprint: c.Identity.Fingerprint(), Layout: c.Identity.Layout}
}
