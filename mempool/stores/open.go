package stores

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/carrier"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/internal/dirmem"
	"github.com/coppice-llm/coppice/mempool/internal/diskmem"
	"github.com/coppice-llm/coppice/mempool/internal/hostmem"
)

// Config says which stores there are below the device. The zero value: none.
type Config struct {
	// HostBytes is the host memory for KV. Default: 0, none.
	HostBytes int64
	// Disk is a directory for at most DiskBytes of KV, used by one process at a time. Its
	// contents survive a restart. Default: none.
	Disk      string
	DiskBytes int64
	// Share is a directory for at most ShareBytes of KV that several processes use at once.
	// Default: none.
	Share      string
	ShareBytes int64
	// Shrink permits that KV is dropped because DiskBytes or ShareBytes is smaller than the size
	// recorded in the directory. Without it, a disk keeps room for what it holds, and a shared
	// directory keeps its size; the log says so.
	Shrink bool
	// Sealer, unless nil, encrypts and authenticates the KV in Disk and Share. Host memory is not
	// sealed. ReadKey and NewSealer make one.
	Sealer *Sealer
	// Required makes Open fail if a store can't be opened. Without it, Open leaves that store out and logs a
	// warning. An invalid configuration always fails.
	Required bool
	// ExtentPages is the number of pages that move together. Default: that of the identity, which is the
	// smallest power of two whose pages hold at least 1 MiB.
	ExtentPages int
	// Inject, in tests, makes the system calls of all stores fail; see package storetest.
	Inject *blockio.Injector
}

// Validate returns an error that names all invalid fields, or nil.
func (c *Config) Validate() error {
	var errs []error
	for _, d := range [...]struct {
		dir, name string
		bytes     int64
	}{{c.Disk, "Disk", c.DiskBytes}, {c.Share, "Share", c.ShareBytes}} {
		if (d.dir == "") != (d.bytes == 0) || d.bytes < 0 {
			errs = append(errs, fmt.Errorf("stores: %s is %q and %sBytes %d, want both or none", d.name, d.dir, d.name, d.bytes))
		}
	}
	if c.ExtentPages < 0 {
		errs = append(errs, fmt.Errorf("stores: ExtentPages is %d, want 0 (as many as have 1 MiB) or more", c.ExtentPages))
	}
	if c.HostBytes < 0 {
		errs = append(errs, fmt.Errorf("stores: HostBytes is %d, want 0 (none) or more", c.HostBytes))
	}
	return errors.Join(errs...)
}

// openLimit bounds the time to look for a shared directory, and that to open it. On a network file
// system that does not answer, both would wait for ever.
const openLimit = 30 * time.Second

// closeLimit bounds the time to close the opened stores if another can't be opened.
const closeLimit = 3 * time.Second

// opener opens the store of a tier.
type opener struct {
	tier  kv.Tier
	dir   string // empty for host memory
	check func() error
	open  func() (mempool.Store, error)
}

// openers returns the openers of the stores that c names.
func (c *Config) openers(id mempool.Identity, log *slog.Logger) (all []opener) {
	if c.HostBytes > 0 {
		h := hostmem.Config{Identity: id, Bytes: c.HostBytes, Inject: c.Inject}.WithDefaults()
		all = append(all, opener{kv.TierHost, "", h.Validate, func() (mempool.Store, error) { return hostmem.Open(h) }})
	}
	id.Sealed = c.Sealer != nil
	if c.Disk != "" {
		d := diskmem.Config{Dir: c.Disk, Identity: id, Sealer: c.Sealer, Bytes: c.DiskBytes, Shrink: c.Shrink, Inject: c.Inject}.WithDefaults()
		all = append(all, opener{kv.TierDisk, c.Disk, d.Validate, func() (mempool.Store, error) { return diskmem.Open(d) }})
	}
	if c.Share != "" {
		d := dirmem.Config{
			Dir: c.Share, Identity: id, Sealer: c.Sealer, Bytes: c.ShareBytes, Shrink: c.Shrink, Upkeep: upkeep(log, c.Share), Inject: c.Inject,
		}.WithDefaults()
		open := func() (mempool.Store, error) { return dirmem.Open(d) }
		all = append(all, opener{kv.TierShared, c.Share, d.Validate, func() (mempool.Store, error) {
			return within(openLimit, c.Share, open, func(s mempool.Store) { _ = s.Close() })
		}})
	}
	return all
}

// Open opens the stores that c names for KV of the identity id, and no other: the fastest tier first. created lists the
// directories that it made. log gets the warnings, also later ones; nil: none. If Open fails, it closes the stores that
// it opened and returns all errors.
func (c Config) Open(id mempool.Identity, log *slog.Logger) (opened []mempool.Store, created []string, err error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if err := c.Validate(); err != nil {
		return nil, nil, err
	}
	if c.ExtentPages > 0 {
		id.Layout.ExtentPages = c.ExtentPages
	}
	openers := c.openers(id, log)
	var errs []error
	for i, o := range openers {
		errs = append(errs, o.check())
		if i > 0 && o.tier == openers[i-1].tier {
			errs = append(errs, fmt.Errorf("stores: two stores of the tier %v, want one a tier", o.tier))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	find := func() ([]string, error) { return missing(c.Disk, c.Share), nil }
	created, _ = within(openLimit, c.Share, find, func([]string) {}) // what follows finds out the same and says it
	for _, o := range openers {
		s, err := o.open()
		switch {
		case err == nil:
			opened = append(opened, s)
		case c.Required:
			errs = append(errs, err)
		default:
			log.Warn("tier can't be opened, so the node runs without it", "tier", o.tier.String(), "directory", o.dir, "error", err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, errors.Join(err, carrier.CloseStores(opened, time.Now().Add(closeLimit)))
	}
	return opened, created, nil
}

// missing returns the given directories that do not exist.
func missing(dirs ...string) (names []string) {
	for _, dir := range dirs {
		if _, err := os.Stat(dir); dir != "" && errors.Is(err, fs.ErrNotExist) {
			names = append(names, dir)
		}
	}
	return names
}

// upkeep returns a function that logs when the upkeep of a shared directory begins to fail, and when it
// succeeds again.
func upkeep(log *slog.Logger, dir string) func(error) {
	return func(err error) {
		log := log.With("tier", kv.TierShared.String(), "directory", dir)
		if err != nil {
			log.Warn("the upkeep of a tier fails; if it does in all processes, no quota is kept", "error", err)
		} else {
			log.Info("the upkeep of a tier succeeds again")
		}
	}
}
