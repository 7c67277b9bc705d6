package diskmem

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/internal/mempool/blockio"
	"github.com/coppice-llm/coppice/mempool"
)

// Defaults of a [Config]. NVMe drives reach their bandwidth with a few transfers of
// 1 MiB at once; more only wait for each other.
const (
	DefaultWorkers      = 4
	DefaultMaxOps       = 256
	DefaultSegmentBytes = 256 << 20
)

// Config is what a store is opened with. Dir, Identity and Bytes are needed.
type Config struct {
	Dir          string // made if need be
	Identity     mempool.Identity
	Bytes        int64 // that the slots may take, headers included
	SegmentBytes int64 // of a file of slots: room is reserved in such pieces
	Workers      int   // goroutines that read and write
	MaxOps       int   // open operations

	// Inject plants faults in tests.
	Inject *blockio.Injector
}

// WithDefaults fills in what is zero.
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

// Validate reports all that is wrong with c.
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
			errs = append(errs, fmt.Errorf("diskmem: Bytes is %d, a slot has %d", c.Bytes, f.SlotBytes()))
		}
	}
	return errors.Join(errs...)
}

func (c *Config) format() mempool.Format {
	return mempool.Format{Fingerprint: c.Identity.Fingerprint(), Layout: c.Identity.Layout}
}
