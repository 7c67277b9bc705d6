package residency

import (
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// find is the scratch of one lookup.
type find struct {
	device []kvindex.Overlap
	all    []kvindex.Overlap // in whatever tier, of ranks with a table
	locals []kv.LocalHash    // the caller's
	hashes []kv.BlockHash    // of locals, as far as they were needed
	from   []int             // by tiered rank: where its overlap stands in the result, or -1
}

// Find appends the overlap of each holder that has the first block of a sequence, in no
// order. It allocates only if dst has no room. Cost: kvindex's Find; if there are ranks
// with lower tiers, that again, and some steps for each of them that is found, for one
// with blocks on disk alone a step for each block behind the device's.
func (x *Residency) Find(locals []kv.LocalHash, dst []Overlap) []Overlap {
	if len(locals) == 0 {
		return dst
	}
	f := x.finds.Get().(*find)
	losses, tiered, first := x.losses.Load(), x.tiered.Load(), len(dst)
	f.device = x.index.Find(locals, f.device[:0])
	for _, o := range f.device {
		if !isShadow(o.Holder) {
			dst = append(dst, Overlap{Holder: o.Holder, Device: int(o.Blocks)})
		}
	}
	if len(tiered.ranks) > 0 {
		f.locals, f.hashes = locals, f.hashes[:0]
		f.all = x.below.Find(locals, f.all[:0])
		dst = f.below(tiered, losses, dst, first)
		f.locals = nil
	}
	x.finds.Put(f)
	return dst
}

// below lets the overlaps of ranks with a table, in dst from the first on, go on where
// the device ends, and appends those that have nothing on the device.
func (f *find) below(tiered *tieredRanks, losses uint64, dst []Overlap, first int) []Overlap {
	f.from = f.from[:0]
	for range tiered.ranks {
		f.from = append(f.from, -1)
	}
	for i := range dst[first:] {
		if at, ok := tiered.at[dst[first+i].Holder]; ok {
			f.from[at] = first + i
		}
	}
	void := false
	for _, o := range f.all {
		i, ok := tiered.at[o.Holder]
		if !ok {
			continue // a shadow; or it came and went
		}
		at := f.from[i]
		if at < 0 {
			at = len(dst)
			dst = append(dst, Overlap{Holder: o.Holder})
		}
		f.extend(tiered.ranks[i], losses, int(o.Blocks), &dst[at])
		void = void || dst[at].Blocks() == 0
	}
	if void {
		dst = withoutVoid(dst, first)
	}
	return dst
}

// withoutVoid takes out who turned out to have nothing.
func withoutVoid(dst []Overlap, first int) []Overlap {
	kept := dst[:first]
	for _, o := range dst[first:] {
		if o.Blocks() > 0 {
			kept = append(kept, o)
		}
	}
	return kept
}

// extend looks up in a rank's table what follows on its device blocks. all is how many
// it has in whatever tier, by the index. If it has lost blocks since the indexes were
// asked, they may be among those: then all is looked up, as the table is whole while the
// lock is held.
func (f *find) extend(k *rank, losses uint64, all int, o *Overlap) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.tiers == nil {
		return // forgotten meanwhile
	}
	if k.lost > losses {
		o.Device, all = 0, 0
	}
	device := f.while(k.tiers, o.Device, onDevice)
	end := f.while(k.tiers, max(device, all), anyTier)
	host, disk, shared := end, end, end
	if k.tiers.deep > 0 {
		host = f.while(k.tiers, device, onDevice|onHost)
		disk = f.while(k.tiers, host, onDevice|onHost|onDisk)
		shared = f.while(k.tiers, disk, onDevice|onHost|onDisk|onShared)
	}
	o.Device, o.Host, o.Disk, o.Shared, o.Object = device, host-device, disk-host, shared-disk, end-shared
}

// while is the first block from at on that is in none of some tiers.
func (f *find) while(t *tiers, at int, in tierSet) int {
	for ; at < len(f.locals) && t.masks[f.hash(at)]&in != 0; at++ {
	}
	return at
}

// hash is the chained hash of a block.
func (f *find) hash(at int) kv.BlockHash {
	for i := len(f.hashes); i <= at; i++ {
		next := kv.BlockHash(f.locals[i])
		if i > 0 {
			next = kv.Chain(f.hashes[i-1], f.locals[i])
		}
		f.hashes = append(f.hashes, next)
	}
	return f.hashes[at]
}
