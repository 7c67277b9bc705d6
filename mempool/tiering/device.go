package tiering

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// Device holds which extents are on which pages of the device, and which Writes still read them. Its
// exported methods but Copied change nothing.
type Device struct {
	on      map[kv.PageID][]*node  // the extents on each page, in the order of Computed
	copying map[MoveID][]kv.PageID // the pages that a Write in flight may still read
	readers map[kv.PageID][]MoveID // the inverse of copying
	written []mempool.Key          // extents whose Writes have ended since the last Changes
	leaving []*node                // scratch of Evict
}

func newDevice() Device {
	return Device{on: map[kv.PageID][]*node{}, copying: map[MoveID][]kv.PageID{}, readers: map[kv.PageID][]MoveID{}}
}

// Computed tells the book that the device has extent x now. pages hold it, one for each of its
// pages; hashes are those of the blocks that end in it, nil if unknown, for the owner's [Change]. If x
// contains the pages of a tail on the device, the tail leaves the device. Computed does nothing if the
// device lacks the parent of x. The book copies what it keeps.
func (b *Book) Computed(now time.Duration, x *mempool.Extent, pages []kv.PageID, hashes []kv.BlockHash) {
	index := b.tiers[kv.TierDevice].index
	known := b.nodes[x.Key] != nil
	n := b.node(x)
	if n.uses == 0 || !known { // a ghost starts with its earlier uses
		n.uses++
	}
	if index.Has(x.Key) {
		index.Touch(x.Key)
	} else {
		if tail, ok := outgrown(b, kv.TierDevice, x); ok {
			b.gone(kv.TierDevice, tail)
		}
		if _, err := index.Add(x, 0, 0); err != nil {
			b.forget(x.Key)
			return
		}
		n.pages = slices.Clone(pages)
		if len(hashes) > 0 || !n.named {
			n.hashes = slices.Clone(hashes)
		}
		for _, at := range n.pages {
			b.Device.on[at] = append(b.Device.on[at], n)
		}
	}
	if first := b.below(kv.TierDevice); b.cfg.Mode == Through || first >= kv.TierDisk && n.uses >= b.cfg.Uses {
		b.write(now, x.Key, kv.TierDevice, first, false)
	}
}

// left removes an extent, which has left the device's index, from its pages.
func (d *Device) left(n *node) {
	for _, at := range n.pages {
		if d.on[at] = slices.DeleteFunc(d.on[at], func(o *node) bool { return o == n }); len(d.on[at]) == 0 {
			delete(d.on, at)
		}
	}
	n.pages, n.offered = nil, false
}

// Fate selects the treatment of KV that leaves the device.
type Fate uint8

// The fates.
const (
	Demoted   Fate = iota // written to a lower tier, if it is worth that
	Forgotten             // too old, or of no use; copies in lower tiers stay
	Discarded             // wrong; copies in lower tiers are dropped too
)

// Evict tells the book that the device gives up pages. An extent that loses one page is no longer on
// the device as a whole, so it leaves with all its pages, and with its descendants, as no lookup
// reaches them. Writes of them that Evict begins may still read the pages, see Device.Readers. Other writes
// of them from the device are given up. Evict reports whether any extent has left.
func (b *Book) Evict(now time.Duration, pages []kv.PageID, to Fate) bool {
	leaving := b.Device.leaving[:0]
	for _, at := range pages {
		for _, n := range b.Device.on[at] {
			if !n.leaving {
				n.leaving = true
				leaving = append(leaving, n)
			}
		}
	}
	// Children first: a parent stays on the device while its child is written.
	slices.SortStableFunc(leaving, func(a, b *node) int { return cmp.Compare(b.Start, a.Start) })
	for _, n := range leaving {
		n.leaving = false
		switch to {
		case Demoted:
			b.demote(now, n.Key)
		case Discarded:
			b.Discard(n.Key)
		}
		b.gone(kv.TierDevice, n.Key)
	}
	clear(leaving)
	b.Device.leaving = leaving[:0]
	return len(leaving) > 0
}

// reads notes that move m, which begins, reads the device's pages of its extent.
func (d *Device) reads(m *entry, n *node) {
	m.Pages = n.pages
	n.named = len(n.hashes) > 0
	d.copying[m.ID] = m.Pages
	for _, at := range m.Pages {
		d.readers[at] = append(d.readers[at], m.ID)
	}
}

// Copied notes that Write id no longer reads pages of the device. It ignores other moves.
func (d *Device) Copied(id MoveID) {
	for _, at := range d.copying[id] {
		list := slices.DeleteFunc(d.readers[at], func(o MoveID) bool { return o == id })
		if d.readers[at] = list; len(list) == 0 {
			delete(d.readers, at)
		}
	}
	delete(d.copying, id)
}

// Copying reports whether any Write still reads pages of the device.
func (d *Device) Copying() bool { return len(d.readers) > 0 }

// Readers returns dst with those Writes appended that still read one of pages and are not in dst.
func (d *Device) Readers(pages []kv.PageID, dst []MoveID) []MoveID {
	if len(d.readers) == 0 {
		return dst
	}
	for _, at := range pages {
		for _, id := range d.readers[at] {
			if !slices.Contains(dst, id) {
				dst = append(dst, id)
			}
		}
	}
	return dst
}

// Pages returns dst with the pages of the device's extents appended, in any order.
func (d *Device) Pages(dst []kv.PageID) []kv.PageID {
	for at := range d.on {
		dst = append(dst, at)
	}
	return dst
}

// DeviceLost tells the book that the device has lost all extents, and reads no page any longer. Reads and
// Writes of the device that Next has not returned yet end as canceled; what else is due, Next returns.
func (b *Book) DeviceLost(now time.Duration) {
	for _, x := range b.tiers[kv.TierDevice].index.Contents(nil) {
		if x.Parent.IsZero() {
			b.gone(kv.TierDevice, x.Key)
		}
	}
	due := b.out
	b.out = nil
	for _, m := range due {
		if m.Kind == Read || m.Kind == Write && m.From == kv.TierDevice {
			b.Moved(now, m.ID, mempool.ErrCanceled, 0)
		} else {
			b.out = append(b.out, m)
		}
	}
	clear(b.Device.copying)
	clear(b.Device.readers)
}

// check returns an error unless the extents of the device's index are on their pages.
func (d *Device) check(b *Book) error {
	pages := 0
	for _, x := range b.tiers[kv.TierDevice].index.Contents(nil) {
		n := b.nodes[x.Key]
		if n == nil || len(n.pages) == 0 {
			return fmt.Errorf("tiering: extent %s is on the device without pages", x.Key.Short())
		}
		pages += len(n.pages)
	}
	for _, list := range d.on {
		pages -= len(list)
	}
	if pages != 0 {
		return fmt.Errorf("tiering: the device's extents have %d pages more than is known of the pages", pages)
	}
	return nil
}
