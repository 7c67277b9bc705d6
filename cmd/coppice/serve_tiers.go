package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool/stores"
	"github.com/coppice-llm/coppice/mempool/tiering"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler"
)

// tierFlags configure the tiers below the device.
type tierFlags struct {
	KVHost     byteSize      `name:"kv-host" placeholder:"SIZE" help:"Host memory for KV that the device evicts, for example 4GiB."`
	KVDisk     sizedDir      `name:"kv-disk" placeholder:"DIR:SIZE" help:"Directory on a local disk for evicted KV, and its size, for example /var/cache/coppice:20GiB. It survives restarts. For one process at a time."`
	KVShare    sizedDir      `name:"kv-share" placeholder:"DIR:SIZE" help:"Directory for KV that several processes share, and its size, for example /mnt/kv:100GiB. The directory keeps one size for all processes: the largest given."`
	KVShrink   bool          `name:"kv-shrink" help:"Permit that KV is dropped because the SIZE of --kv-disk or --kv-share is smaller than before. Without it a disk keeps what it holds and a shared directory its size."`
	KVRequired bool          `name:"kv-required" help:"Refuse to start if a tier can't be opened. Without it the server warns and runs without that tier."`
	KVKey      sealFile      `name:"kv-key" placeholder:"FILE" help:"File of secrets that seal the KV in --kv-disk and --kv-share: 64 hexadecimal digits on a line. The first seals, all open. See above."`
	KVWrite    tiering.Mode  `name:"kv-write" default:"back" help:"When KV is copied from the device to the tier below: back (when the device needs room), selective (on its second use) or through (when it is computed). Disk and share take KV that was used twice, idle conversations, and everything at shutdown. A disk less than 85 % full also takes KV that the tier above drops."`
	KVToken    time.Duration `name:"kv-token-time" min:"0s" help:"Time to compute a prompt token, which decides whether to fetch a prefix from a tier or to compute it. Default: measured."`
	KVFlush    time.Duration `name:"kv-flush" default:"10s" min:"0s" help:"How long a shutdown may write KV to disk and share, after --drain. 0: write nothing."`
}

// none reports whether there is no tier below the device.
func (f *tierFlags) none() bool { return f.KVHost == 0 && f.KVDisk.dir == "" && f.KVShare.dir == "" }

// tiers returns the configuration given by the flags.
func (f *tierFlags) tiers() coppice.Tiers {
	t := coppice.Tiers{Write: f.KVWrite, Flush: cmp.Or(f.KVFlush, -1), TokenSeconds: f.KVToken.Seconds()}
	if !f.none() {
		t.Open = stores.Config{
			HostBytes: int64(f.KVHost), Disk: f.KVDisk.dir, DiskBytes: int64(f.KVDisk.size), Share: f.KVShare.dir, ShareBytes: int64(f.KVShare.size),
			Shrink: f.KVShrink, Required: f.KVRequired, Sealer: f.KVKey.sealer,
		}.Open
	}
	return t
}

// check reports faults of values and of combinations of flags; isSet reports whether a flag
// was set.
func (f *tierFlags) check(isSet func(string) bool) error {
	var faults bounds.Faults
	faults.If(f.none() && (isSet("kv-write") || isSet("kv-flush") || isSet("kv-token-time") || f.KVRequired),
		"--kv-write, --kv-flush, --kv-token-time and --kv-required configure tiers: give --kv-host, --kv-disk or --kv-share too")
	faults.If(f.KVDisk.dir != "" && filepath.Clean(f.KVDisk.dir) == filepath.Clean(f.KVShare.dir),
		"--kv-disk and --kv-share are both %s: give each its own directory", f.KVDisk.dir)
	directories := f.KVDisk.dir != "" || f.KVShare.dir != ""
	faults.If(f.KVShrink && !directories, "--kv-shrink is about directories: give --kv-disk or --kv-share too")
	faults.If(f.KVKey.path != "" && !directories, "--kv-key seals the KV in directories: give --kv-disk or --kv-share too")
	return faults.Err()
}

// sizedDir is a flag for a directory and its capacity, such as /var/cache/coppice:20GiB.
type sizedDir struct {
	dir  string
	size byteSize
}

// UnmarshalText parses the form that String returns.
func (d *sizedDir) UnmarshalText(text []byte) error {
	s := string(text)
	at := strings.LastIndexByte(s, ':')
	if at <= 0 {
		return fmt.Errorf("%q is not a directory with a size; want one like /var/cache/coppice:20GiB", s)
	}
	var size byteSize
	if err := size.UnmarshalText([]byte(s[at+1:])); err != nil {
		return fmt.Errorf("%q: %w", s, err)
	}
	if size <= 0 {
		return fmt.Errorf("%q: the size is %v, want more than 0", s, size)
	}
	*d = sizedDir{s[:at], size}
	return nil
}

func (d sizedDir) String() string {
	if d.dir == "" {
		return ""
	}
	return d.dir + ":" + d.size.String()
}

// sealFile is a flag for a file of secrets that seal KV.
type sealFile struct {
	path   string
	sealer *stores.Sealer
}

// UnmarshalText reads the file with this name.
func (f *sealFile) UnmarshalText(text []byte) error {
	s, err := stores.ReadKey(string(text))
	if err == nil {
		*f = sealFile{string(text), s}
	}
	return err
}

func (f sealFile) String() string { return f.path }

// cacheFlags configure eviction from the prefix cache.
type cacheFlags struct {
	Eviction radixcache.Policy `default:"lru" help:"Eviction policy of the prefix cache: ${evictions}."`
	SLRUHits int               `name:"slru-hits" default:"1" help:"With --eviction slru: a prefix with this many reuses is evicted after all prefixes with fewer."`
	CacheTTL time.Duration     `name:"cache-ttl" default:"0s" help:"Drop cached KV that no request has used for this long. Default: never; only a full pool evicts."`
}

// set sets the flags and the tenants' quotas in a configuration. A tenant's quota covers
// the namespace of its requests without a cache_salt.
func (f *cacheFlags) set(c *scheduler.Config, quotas map[string]cacheQuota) {
	c.Eviction, c.SLRUHits, c.CacheTTL = f.Eviction, f.SLRUHits, f.CacheTTL
	if len(quotas) > 0 {
		c.Quotas, c.MinQuotas = map[kv.Namespace]int{}, map[kv.Namespace]int{}
	}
	for tenant, q := range quotas {
		ns := conversation.Namespace(tenant, "")
		c.Quotas[ns], c.MinQuotas[ns] = q.most, q.least
	}
}
