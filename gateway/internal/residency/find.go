package residency

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// find holds the memory of one lookup, which later lookups reuse.
type find struct {
	device []kvindex.Overlap
	all    []kvindex.Overlap // blocks in any tier, of ranks with a table
	hashes []kv.BlockHash    // the prompt's block hashes; they belong to the caller of Find
	from   []int             // by index of a rank in tieredRanks: index of its overlap in the result, or -1
}

// Find appends to dst the overlap of each rank that has the first block of hashes, the chained
// hashes of a prompt's blocks, in no particular order. A tier can only follow a higher one. So
// after the first block that the device lacks, a further block on the device counts as in host
// memory, since it is at least as close. Example: blocks on device, host, device, disk give Device
// 1, Host 2, Disk 1.
//
// Find allocates only to grow dst. It costs one kvindex Find. If there are ranks with lower tiers,
// it costs a second one, and a few steps per such rank found. For a rank with blocks that are only
// on disk or lower, it costs one step per block after those on the device.
func (x *Residency) Find(hashes []kv.BlockHash, dst []router.Overlap) []router.Overlap {
	if len(hashes) == 0 {
		return dst
	}
	f := x.finds.Get().(*find)
	losses, tiered, first := x.losses.Load(), x.tiered.Load(), len(dst)
	f.device = x.index.Find(hashes, f.device[:0])
	for _, o := range f.device {
		if !isShadow(o.Holder) {
			dst = append(dst, router.Overlap{Worker: o.Holder, Device: int(o.Blocks)})
		}
	}
	if len(tiered.ranks) > 0 {
		f.hashes = hashes
		f.all = x.below.Find(hashes, f.all[:0])
		dst = f.below(tiered, losses, dst, first)
		f.hashes = nil
	}
	x.finds.Put(f)
	return dst
}

// below extends the overlaps in dst[first:] of ranks with a table beyond their blocks on the
// device, and appends overlaps of ranks that have nothing on the device. losses is the value of
// Residency.losses before the lookup.
func (f *find) below(tiered *tieredRanks, losses uint64, dst []router.Overlap, first int) []router.Overlap {
	f.from = f.from[:0]
	for range tiered.ranks {
		f.from = append(f.from, -1)
	}
	for i := range dst[first:] {
		if at, ok := tiered.at[dst[first+i].Worker]; ok {
			f.from[at] = first + i
		}
	}
	empty := false
	for _, o := range f.all {
		i, ok := tiered.at[o.Holder]
		if !ok {
			continue // a shadow, or a rank that came or left during the lookup
		}
		at := f.from[i]
		if at < 0 {
			at = len(dst)
			dst = append(dst, router.Overlap{Worker: o.Holder})
		}
		f.extend(tiered.ranks[i], losses, int(o.Blocks), &dst[at])
		empty = empty || dst[at].Blocks() == 0
	}
	if empty {
		kept := slices.DeleteFunc(dst[first:], func(o router.Overlap) bool { return o.Blocks() == 0 })
		dst = dst[:first+len(kept)]
	}
	return dst
}

// extend sets o, the overlap of rank k, from the rank's table. all is the number of leading
// blocks that the rank has in any tier by the index below, and o.Device the number by the index
// of the device. losses is the value of Residency.losses before these were read. If the rank has
// lost blocks since, these numbers may be too high, so the table is then read from the first
// block on. The table can't change meanwhile, because extend holds the lock.
func (f *find) extend(k *rank, losses uint64, all int, o *router.Overlap) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.tiers == nil {
		return // forgotten or cleared meanwhile
	}
	if k.lost > losses {
		o.Device, all = 0, 0
	}
	device := f.extent(k.tiers, o.Device, onDevice)
	end := f.extent(k.tiers, max(device, all), anyTier)
	host, disk, shared := end, end, end
	if k.tiers.deep > 0 {
		host = f.extent(k.tiers, device, onDevice|onHost)
		disk = f.extent(k.tiers, host, onDevice|onHost|onDisk)
		shared = f.extent(k.tiers, disk, onDevice|onHost|onDisk|onShared)
	}
	o.Device, o.Host, o.Disk, o.Shared, o.Object = device, host-device, disk-host, shared-disk, end-shared
}

// extent returns the index of the first block, from at on, that table t has in none of the tiers
// of in.
func (f *find) extent(t *tiers, at int, in tierSet) int {
	for ; at < len(f.hashes) && t.masks[f.hashes[at]]&in != 0; at++ {
	}
	return at
}
