// Package masks owns a mirror of the masks of tokens that the backend keeps, and decides under which
// id a row's mask is there, so that bits are sent only if they are new. It never decides what a mask
// allows: the bits come from the caller. The owner of the scheduler calls it.
package masks

import (
	"fmt"
	"math/bits"
	"slices"
	"weak"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler/internal/planted"
)

// Table mirrors the masks that the backend keeps, by id. Rows that may sample the same
// tokens name the same mask, wherever it comes from: a state of a grammar that occurs
// again, another sample, or another request with the same format. So bits are sent to the
// backend only if they are new, or if they were unused for so long that their id was given
// to another mask. With a vocabulary of 128,000 tokens, a mask that is not sent saves 16 KB
// per row and step.
//
// The ids that no plan in flight names form a list, the one unused for longest first.
type Table struct {
	kept    []entry                  // by id; kept[0] is the head of the list
	most    int                      // Info.MaxMasks: the largest id
	spare   int                      // masks that only drafts may name at a time; see MayDraft
	drafts  int                      // masks named for drafts in flight, each counted as often as it is named
	byHash  map[uint64]engine.MaskID // id by hash of the bits
	formats map[formatKey]*Format
	words   int      // uint64 words of a mask: a bit per token
	work    []uint64 // the bits of the row being planned; nil until a row has a format
	sets    uint64   // masks sent so far
	rows    uint64   // rows so far that named a mask
	fault   planted.Fault
}

// entry mirrors the mask that the backend keeps under an id.
type entry struct {
	bits       []uint64 // owned by the table; they change only while no plan in flight names the id
	hash       uint64
	set        uint64 // value of Table.sets when it was sent; 0: dropped
	last       uint64 // Seq of the last plan that named it
	rows       int    // rows in flight that name it; in the list if 0
	prev, next engine.MaskID
}

// place remembers under which id a mask was kept. The mask is still there if set equals
// entry.set of that id.
type place struct {
	id  engine.MaskID
	set uint64 // entry.set then; 0: nowhere yet
}

// Fixed is a mask that does not change from row to row.
type Fixed struct {
	Bits []uint64
	place
}

// Format remembers, for each state of a format, which id of the backend holds the mask
// of that state (see place). Requests with the same format and equal stop tokens share
// one Format. While the backend still holds a state's mask, the matcher does not
// compute it again.
type Format struct{ places map[State]place }

// State determines which tokens a row may sample under a format.
type State struct {
	State uint64 // of the matcher
	Phase uint64 // 0 within MinTokens, then 1, or 2 where the text may end, so that stop tokens are allowed
}

// formatKey identifies a format without keeping it alive.
type formatKey struct {
	format weak.Pointer[grammar.Grammar]
	stops  string // the request's stop tokens, printed
}

// mostFormats and mostStates bound the memory for places; when one is reached, all places
// of its map are forgotten, which costs computing masks again. 1,024 states of 256 formats
// take some 10 MB.
const (
	mostFormats = 256
	mostStates  = 1024 // of each format
)

// maskLife is the number of plans after which a mask that no row has named is dropped, so
// that the backend can free its memory.
const maskLife = 4096

// New makes an empty table for a backend. rows is the number of rows that can be in flight.
func New(info *engine.Info, rows int) Table {
	return Table{spare: info.MaxMasks - rows, kept: make([]entry, 1), most: info.MaxMasks, words: info.MaskWords(), byHash: map[uint64]engine.MaskID{}, formats: map[formatKey]*Format{}}
}

// Reset forgets all masks: the backend that kept them was lost.
func (t *Table) Reset() {
	t.kept, t.drafts = append(t.kept[:0], entry{}), 0
	clear(t.byHash)
}

// Plant puts a fault into t that package schedtest must find.
func (t *Table) Plant(fault planted.Fault) { t.fault = fault }

// Planted reports whether the fault is in t.
func (t *Table) Planted(fault planted.Fault) bool { return t.fault == fault }

// Counts returns the number of rows so far that named a mask, and of masks that were sent for
// them.
func (t *Table) Counts() (rows, sets uint64) { return t.rows, t.sets }

// Format returns the places of the masks of a format for requests with these stop tokens. A
// request with other masks that depend on its rows, apart, gets places of its own; others with
// the same format and equal stop tokens share theirs.
func (t *Table) Format(format *grammar.Grammar, stopTokens []kv.Token, apart bool) *Format {
	f := &Format{map[State]place{}}
	if apart {
		return f
	}
	key := formatKey{weak.Make(format), fmt.Sprint(stopTokens)}
	if known := t.formats[key]; known != nil {
		return known
	}
	if len(t.formats) >= mostFormats {
		clear(t.formats)
	}
	t.formats[key] = f
	return f
}

// Kept returns the id of the mask of the state at for a row of the batch b, if the backend still
// has that mask. Otherwise it returns false, and the caller passes the bits to Keep.
func (t *Table) Kept(b *engine.Batch, f *Format, at State) (engine.MaskID, bool) {
	p := f.places[t.planted(at)]
	if !t.still(p) {
		return 0, false
	}
	return t.name(b, p.id), true
}

// Keep returns the id of the mask of the state at for a row of the batch b. If the backend does
// not have a mask with these bits under any id, they are added to b.
func (t *Table) Keep(b *engine.Batch, f *Format, at State, bits []uint64) engine.MaskID {
	p := t.find(b, bits)
	f.remember(t.planted(at), p)
	return t.name(b, p.id)
}

// planted returns the state at, or with the fault StaleMask the same one for all states.
func (t *Table) planted(at State) State {
	if t.fault == planted.StaleMask {
		at.State = 0
	}
	return at
}

// remember notes that the mask of the state at is kept at p.
func (f *Format) remember(at State, p place) {
	if len(f.places) >= mostStates {
		clear(f.places)
	}
	f.places[at] = p
}

// Scratch returns memory for one mask, valid until the next call.
func (t *Table) Scratch() []uint64 {
	if t.work == nil {
		t.work = make([]uint64, t.words)
	}
	return t.work
}

// Fixed returns the id of f's mask for a row of the batch b. If the backend does not have
// the mask, its bits are added to b. For a nil f it returns 0, the id that allows all
// tokens.
func (t *Table) Fixed(b *engine.Batch, f *Fixed) engine.MaskID {
	if f == nil {
		return 0
	}
	if !t.still(f.place) {
		f.place = t.find(b, f.Bits)
	}
	return t.name(b, f.id)
}

// still reports whether the backend still keeps the mask that was put at p.
func (t *Table) still(p place) bool {
	return p.set != 0 && int(p.id) < len(t.kept) && t.kept[p.id].set == p.set
}

// name notes that one more row of b names the mask id, and returns id. From now on b counts
// as a plan in flight.
func (t *Table) name(b *engine.Batch, id engine.MaskID) engine.MaskID {
	k := &t.kept[id]
	if k.rows == 0 {
		t.unlink(id)
	}
	k.rows++
	k.last = b.Seq
	t.rows++
	return id
}

// Done notes that a row that named the mask id has completed.
func (t *Table) Done(id engine.MaskID) {
	k := &t.kept[id]
	if k.rows--; k.rows == 0 {
		t.append(id)
	}
}

// MayDraft reports whether a plan may name one more mask for a draft. Each row in flight must find a
// mask for its first sample, so drafts have the masks that are left beyond one a row.
func (t *Table) MayDraft() bool { return t.drafts < t.spare }

// Drafted notes that the mask id, which was named just now, is that of a draft.
func (t *Table) Drafted(id engine.MaskID) {
	if id != 0 {
		t.drafts++
	}
}

// Landed is Done for a mask that Drafted has noted.
func (t *Table) Landed(id engine.MaskID) {
	if id != 0 {
		t.drafts--
		t.Done(id)
	}
}

// Allows reports whether the mask id allows token, which must be of the vocabulary.
func (t *Table) Allows(id engine.MaskID, token kv.Token) bool {
	return id == 0 || t.kept[id].bits[token/64]>>(token%64)&1 == 1
}

// find returns the place where a mask with these bits is kept. If there is none, it takes
// an id, stores a copy of bits under it, and adds the mask to b.Masks.
func (t *Table) find(b *engine.Batch, bits []uint64) place {
	h := hashMask(bits)
	if id, ok := t.byHash[h]; ok && sameMask(t.kept[id].bits, bits) {
		return place{id, t.kept[id].set}
	}
	id := t.room()
	k := &t.kept[id]
	t.forget(id)
	t.sets++
	k.bits, k.hash, k.set = append(k.bits[:0], bits...), h, t.sets
	t.byHash[h] = id
	b.Masks = append(b.Masks, engine.MaskSet{ID: id, Bits: k.bits})
	return place{id, k.set}
}

// room returns an id that no plan in flight names: a dropped or new one if possible, else
// the one unused for longest. Config.Validate bounds the rows in flight by the number of
// masks, so there is always such an id; if there is none, room panics.
func (t *Table) room() engine.MaskID {
	if first := t.kept[0].next; first != 0 && (len(t.kept) > t.most || t.kept[first].set == 0) {
		return first
	}
	if len(t.kept) > t.most {
		panic(fmt.Sprintf("scheduler: plans in flight use all %d masks", t.most))
	}
	t.kept = append(t.kept, entry{})
	id := engine.MaskID(len(t.kept) - 1)
	t.append(id)
	return id
}

// Expire drops the mask that was unused for longest, if no row has named it for maskLife
// plans. It adds the id to b.Drops. It drops at most one mask in a step.
func (t *Table) Expire(b *engine.Batch) {
	id := t.kept[0].next
	if id == 0 || t.kept[id].set == 0 || t.kept[id].last+maskLife > b.Seq {
		return
	}
	b.Drops = append(b.Drops, id)
	t.forget(id)
	k := &t.kept[id]
	k.bits, k.set, k.last = nil, 0, 0
}

// forget removes the bits of id from byHash, so that find no longer returns id for them.
func (t *Table) forget(id engine.MaskID) {
	if k := &t.kept[id]; k.set != 0 && t.byHash[k.hash] == id {
		delete(t.byHash, k.hash)
	}
}

// append puts id at the end of the list of ids that no plan in flight names.
func (t *Table) append(id engine.MaskID) {
	last := t.kept[0].prev
	t.kept[id].prev, t.kept[id].next = last, 0
	t.kept[last].next, t.kept[0].prev = id, id
}

// unlink takes id out of the list.
func (t *Table) unlink(id engine.MaskID) {
	k := &t.kept[id]
	t.kept[k.prev].next, t.kept[k.next].prev = k.next, k.prev
}

// sameMask compares two masks of equal length, 64 words at a time: comparing arrays is one
// call of the runtime's memory comparison.
func sameMask(a, b []uint64) bool {
	for len(a) >= 64 && len(b) >= 64 {
		if *(*[64]uint64)(a) != *(*[64]uint64)(b) {
			return false
		}
		a, b = a[64:], b[64:]
	}
	return slices.Equal(a, b)
}

// hashMask hashes bits in four independent strands of four words each, so that a
// multiplication does not wait for the one before. Collisions are harmless: find compares
// the words of equal hashes.
func hashMask(mask []uint64) uint64 {
	const odd = 0x9e3779b97f4a7c15
	a, b, c, d := uint64(1), uint64(2), uint64(3), uint64(4)
	for len(mask) >= 16 {
		m := (*[16]uint64)(mask)
		a = (bits.RotateLeft64(a, 31) ^ m[0] ^ bits.RotateLeft64(m[4], 23) ^ bits.RotateLeft64(m[8], 37) ^ bits.RotateLeft64(m[12], 11)) * odd
		b = (bits.RotateLeft64(b, 31) ^ m[1] ^ bits.RotateLeft64(m[5], 23) ^ bits.RotateLeft64(m[9], 37) ^ bits.RotateLeft64(m[13], 11)) * odd
		c = (bits.RotateLeft64(c, 31) ^ m[2] ^ bits.RotateLeft64(m[6], 23) ^ bits.RotateLeft64(m[10], 37) ^ bits.RotateLeft64(m[14], 11)) * odd
		d = (bits.RotateLeft64(d, 31) ^ m[3] ^ bits.RotateLeft64(m[7], 23) ^ bits.RotateLeft64(m[11], 37) ^ bits.RotateLeft64(m[15], 11)) * odd
		mask = mask[16:]
	}
	for _, w := range mask {
		a = (bits.RotateLeft64(a, 31) ^ w) * odd
	}
	return a ^ bits.RotateLeft64(b, 16) ^ bits.RotateLeft64(c, 32) ^ bits.RotateLeft64(d, 48)
}

// Check walks the table and compares it with the batches of the plans in flight.
func (t *Table) Check(inflight []*engine.Batch) error {
	named := make([]int, len(t.kept))
	for _, b := range inflight {
		for i := range b.Rows {
			for j := range 1 + len(b.Rows[i].DraftMasks) {
				if id := b.Rows[i].MaskAt(j); id != 0 {
					named[id]++
				}
			}
		}
	}
	idle := map[engine.MaskID]bool{}
	for id := t.kept[0].next; id != 0; id = t.kept[id].next {
		if idle[id] {
			return fmt.Errorf("scheduler: mask %d is in the list twice", id)
		}
		idle[id] = true
	}
	for i := 1; i < len(t.kept); i++ {
		id, k := engine.MaskID(i), &t.kept[i]
		switch {
		case k.rows != named[i]:
			return fmt.Errorf("scheduler: mask %d counts %d rows in flight, want %d", id, k.rows, named[i])
		case idle[id] != (k.rows == 0):
			return fmt.Errorf("scheduler: mask %d, named by %d rows in flight, is free: %v", id, k.rows, idle[id])
		case k.rows > 0 && k.set == 0:
			return fmt.Errorf("scheduler: mask %d is named by %d rows and not set", id, k.rows)
		}
	}
	return nil
}
