package mocker

import "github.com/coppice-llm/coppice/kv"

// log collects the events of one pass, in order. After reset it reuses its memory.
type log struct {
	entries []entry
	blocks  []kv.Block
	hashes  []kv.BlockHash
}

// entry is an event. Its blocks are blocks[lo:hi] of the log; if it is a removal, its hashes are
// hashes[lo:hi].
type entry struct {
	kind      kv.EventKind
	parent    kv.BlockHash
	hasParent bool
	lo, hi    int
}

func (l *log) reset() {
	l.entries, l.blocks, l.hashes = l.entries[:0], l.blocks[:0], l.hashes[:0]
}

// stored records a new block with its two hashes, after the block parent if hasParent. If parent
// is the block recorded last, both blocks share an event.
func (l *log) stored(parent kv.BlockHash, hasParent bool, hash kv.BlockHash, local kv.LocalHash) {
	lo := len(l.blocks)
	l.blocks = append(l.blocks, kv.Block{Hash: hash, Local: local})
	if n := len(l.entries); n > 0 && hasParent {
		e := &l.entries[n-1]
		if e.kind == kv.Stored && l.blocks[lo-1].Hash == parent {
			e.hi++
			return
		}
	}
	l.entries = append(l.entries, entry{kv.Stored, parent, hasParent, lo, lo + 1})
}

// removed records the eviction of a block. Consecutive evictions share an event.
func (l *log) removed(hash kv.BlockHash) {
	lo := len(l.hashes)
	l.hashes = append(l.hashes, hash)
	if n := len(l.entries); n > 0 && l.entries[n-1].kind == kv.Removed {
		l.entries[n-1].hi++
		return
	}
	l.entries = append(l.entries, entry{kind: kv.Removed, lo: lo, hi: lo + 1})
}

// drain appends the events to dst and numbers them, starting with *seq; *seq becomes the next
// number. The slices of the events belong to the log and are valid until its reset.
func (l *log) drain(dst []kv.Event, seq *uint64) []kv.Event {
	for i := range l.entries {
		e := &l.entries[i]
		event := kv.Event{Seq: *seq, Kind: e.kind, Parent: e.parent, HasParent: e.hasParent}
		if e.kind == kv.Stored {
			event.Blocks = l.blocks[e.lo:e.hi:e.hi]
		} else {
			event.Hashes = l.hashes[e.lo:e.hi:e.hi]
		}
		*seq++
		dst = append(dst, event)
	}
	return dst
}
