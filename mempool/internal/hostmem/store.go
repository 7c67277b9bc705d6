package hostmem

import (
	"errors"
	"fmt"
	"math"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/internal/offheap"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/checksum"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/internal/ops"
	"github.com/coppice-llm/coppice/mempool/internal/record"
	"github.com/coppice-llm/coppice/mempool/internal/slotted"
)

// Config configures a store. Identity and Bytes are required.
type Config struct {
	Identity mempool.Identity
	Bytes    int64 // bytes of memory to reserve
	// Workers is the number of goroutines that copy. One nearly saturates a memory channel
	// with plain copies; a second one makes up for the time of the checksums.
	Workers int `default:"2" min:"1"`
	MaxOps  int `default:"256" min:"1"` // most open operations

	// Inject plants faults in tests.
	Inject *blockio.Injector
}

// WithDefaults returns c with defaults for the fields that are zero.
func (c Config) WithDefaults() Config { return bounds.Fill(c) }

// Validate returns an error that names all invalid fields, or nil.
func (c *Config) Validate() error {
	errs := []error{c.Identity.Validate(), bounds.Check("hostmem", c)}
	if errs[0] == nil && c.Bytes < int64(c.Identity.Layout.ExtentBytes()) {
		errs = append(errs, fmt.Errorf("hostmem: Bytes is %d, want at least %d, one extent", c.Bytes, c.Identity.Layout.ExtentBytes()))
	}
	return errors.Join(errs...)
}

// Open reserves the memory, in huge pages where the system has them, and returns an empty store.
// Its contents end with the process.
func Open(c Config) (*slotted.Store, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	slot := c.Identity.Layout.ExtentBytes()
	slots := min(c.Bytes/int64(slot), math.MaxInt32)
	memory, err := offheap.Reserve(int(slots) * slot)
	if err != nil {
		return nil, fmt.Errorf("hostmem: reserving %d extents of %d bytes: %w", slots, slot, err)
	}
	offheap.Huge(memory)
	info := mempool.StoreInfo{Tier: kv.TierHost, Identity: c.Identity, CapacityBytes: int64(len(memory)), SlotBytes: slot, MaxOps: c.MaxOps}
	return slotted.New(slotted.Config{Info: info, Workers: c.Workers}, &medium{bytes: memory, layout: c.Identity.Layout, in: c.Inject}), nil
}

// medium is memory cut into slots.
type medium struct {
	bytes  []byte
	layout mempool.Layout
	in     *blockio.Injector
}

func (m *medium) slot(at int32, bytes int) []byte {
	lo := int(at) * m.layout.ExtentBytes()
	return m.bytes[lo : lo+bytes : lo+bytes]
}

// Write implements slotted.Medium.
func (m *medium) Write(_ int, at int32, _ bool, j *ops.Job, r *record.Record) error {
	dst := m.slot(at, r.PayloadBytes)
	_, err := m.in.Move(blockio.Write, dst, func() (int, error) {
		if !j.Pages(func(pages [][]byte) { r.PayloadSum = checksum.Gather(dst, pages) }) {
			return 0, ops.ErrEnded
		}
		return len(dst), nil
	})
	return err
}

// Read implements slotted.Medium.
func (m *medium) Read(_ int, at int32, j *ops.Job, r *record.Record) error {
	src := m.slot(at, r.PayloadBytes)
	n, err := m.in.Move(blockio.Read, src, func() (int, error) { return len(src), nil })
	if err != nil {
		return err
	}
	return slotted.Deliver(j, src[:n], r)
}

// Erase implements slotted.Medium. It does nothing: a slot that is not in the index is never read.
func (*medium) Erase(int, int32) error { return nil }

// Grow implements slotted.Medium.
func (m *medium) Grow(int32) (int32, error) {
	return int32(len(m.bytes) / m.layout.ExtentBytes()), nil
}

// Flush implements slotted.Medium. It does nothing: the contents end with the process.
func (*medium) Flush(int, func() ([]slotted.Placed, bool)) error { return nil }

// Close implements slotted.Medium.
func (m *medium) Close(func() ([]slotted.Placed, bool)) error {
	b := m.bytes
	m.bytes = nil
	return offheap.Release(b)
}
