package scheduler

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

// maskTable mirrors the masks that the backend keeps, by id. Rows that may sample the same
// tokens name the same mask, wherever it comes from: a state of a grammar that occurs
// again, another sample, or another request with the same format. So bits are sent to the
// backend only if they are new, or if they were unused for so long that their id was given
// to another mask. With a vocabulary of 128,000 tokens, a mask that is not sent saves 16 KB
// per row and step.
//
// The ids that no plan in flight names form a list, the one unused for longest first.
type maskTable struct {
	kept    []keptMask               // by id; kept[0] is the head of the list
	most    int                      // Info.MaxMasks: the largest id
	byHash  map[uint64]engine.MaskID // id by hash of the bits
	formats map[formatKey]*formatMasks
	words   int      // uint64 words of a mask: a bit per token
	work    []uint64 // the bits of the row being planned; nil until a row has a format
	sets    uint64   // masks sent so far
	rows    uint64   // rows so far that named a mask
	fault   planted.Fault
}

// keptMask mirrors the mask that the backend keeps under an id.
type keptMask struct {
	bits       []uint64 // owned by the table; they change only while no plan in flight names the id
	hash       uint64
	set        uint64 // value of maskTable.sets when it was sent; 0: dropped
	last       uint64 // Seq of the last plan that named it
	rows       int    // rows in flight that name it; in the list if 0
	prev, next engine.MaskID
}

// maskPlace remembers under which id a mask was kept. The mask is still there if set equals
// keptMask.set of that id.
type maskPlace struct {
	id  engine.MaskID
	set uint64 // keptMask.set then; 0: nowhere yet
}

// fixedMask is a mask that does not change from row to row.
type fixedMask struct {
	bits []uint64
	maskPlace
}

// formatMasks remembers, for each state of a format, which id of the backend holds the mask
// of that state (see maskPlace). Requests with the same format and equal stop tokens share
// one formatMasks. While the backend still holds a state's mask, the matcher does not
// compute it again.
type formatMasks struct{ places map[formatState]maskPlace }

// formatState determines which tokens a row may sample under a format.
type formatState struct {
	state uint64 // of the matcher
	phase uint64 // 0 within MinTokens, then 1, or 2 where the text may end, so that stop tokens are allowed
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

// newMaskTable makes an empty table for a backend.
func newMaskTable(info *engine.Info) maskTable {
	return maskTable{kept: make([]keptMask, 1), most: info.MaxMasks, words: info.MaskWords(), byHash: map[uint64]engine.MaskID{}, formats: map[formatKey]*formatMasks{}}
}

// reset forgets all masks: the backend that kept them was lost.
func (t *maskTable) reset() {
	t.kept = append(t.kept[:0], keptMask{})
	clear(t.byHash)
}

// format returns the places of the masks for the format of req. a has the request's other
// masks. A request with AllowedTokens, or with MinTokens and stop tokens, gets places of
// its own, because its masks differ. Other requests with the same format and equal stop
// tokens share their places.
func (t *maskTable) format(req *Request, a *allowed) *formatMasks {
	f := &formatMasks{map[formatState]maskPlace{}}
	if a.early != nil {
		return f
	}
	key := formatKey{weak.Make(req.Format), fmt.Sprint(req.StopTokens)}
	if known := t.formats[key]; known != nil {
		return known
	}
	if len(t.formats) >= mostFormats {
		clear(t.formats)
	}
	t.formats[key] = f
	return f
}

// keep remembers that the mask of the state at is kept at place.
func (f *formatMasks) keep(at formatState, place maskPlace) {
	if len(f.places) >= mostStates {
		clear(f.places)
	}
	f.places[at] = place
}

// scratch returns memory for one mask, valid until the next call.
func (t *maskTable) scratch() []uint64 {
	if t.work == nil {
		t.work = make([]uint64, t.words)
	}
	return t.work
}

// fixed returns the id of f's mask for a row of the batch b. If the backend does not have
// the mask, its bits are added to b. For a nil f it returns 0, the id that allows all
// tokens.
func (t *maskTable) fixed(b *engine.Batch, f *fixedMask) engine.MaskID {
	if f == nil {
		return 0
	}
	if !t.still(f.maskPlace) {
		f.maskPlace = t.find(b, f.bits)
	}
	return t.name(b, f.id)
}

// still reports whether the backend still keeps the mask that was put at p.
func (t *maskTable) still(p maskPlace) bool {
	return p.set != 0 && int(p.id) < len(t.kept) && t.kept[p.id].set == p.set
}

// name notes that one more row of b names the mask id, and returns id. From now on b counts
// as a plan in flight.
func (t *maskTable) name(b *engine.Batch, id engine.MaskID) engine.MaskID {
	k := &t.kept[id]
	if k.rows == 0 {
		t.unlink(id)
	}
	k.rows++
	k.last = b.Seq
	t.rows++
	return id
}

// done notes that a row that named the mask id has completed.
func (t *maskTable) done(id engine.MaskID) {
	k := &t.kept[id]
	if k.rows--; k.rows == 0 {
		t.append(id)
	}
}

// allows reports whether the mask id allows token, which must be of the vocabulary.
func (t *maskTable) allows(id engine.MaskID, token kv.Token) bool {
	return id == 0 || t.kept[id].bits[token/64]>>(token%64)&1 == 1
}

// find returns the place where a mask with these bits is kept. If there is none, it takes
// an id, stores a copy of bits under it, and adds the mask to b.Masks.
func (t *maskTable) find(b *engine.Batch, bits []uint64) maskPlace {
	h := hashMask(bits)
	if id, ok := t.byHash[h]; ok && sameMask(t.kept[id].bits, bits) {
		return maskPlace{id, t.kept[id].set}
	}
	id := t.room()
	k := &t.kept[id]
	t.forget(id)
	t.sets++
	k.bits, k.hash, k.set = append(k.bits[:0], bits...), h, t.sets
	t.byHash[h] = id
	b.Masks = append(b.Masks, engine.MaskSet{ID: id, Bits: k.bits})
	return maskPlace{id, k.set}
}

// room returns an id that no plan in flight names: a dropped or new one if possible, else
// the one unused for longest. Config.Validate bounds the rows in flight by the number of
// masks, so there is always such an id; if there is none, room panics.
func (t *maskTable) room() engine.MaskID {
	if first := t.kept[0].next; first != 0 && (len(t.kept) > t.most || t.kept[first].set == 0) {
		return first
	}
	if len(t.kept) > t.most {
		panic(fmt.Sprintf("scheduler: plans in flight use all %d masks", t.most))
	}
	t.kept = append(t.kept, keptMask{})
	id := engine.MaskID(len(t.kept) - 1)
	t.append(id)
	return id
}

// expire drops the mask that was unused for longest, if no row has named it for maskLife
// plans. It adds the id to b.Drops. It drops at most one mask in a step.
func (t *maskTable) expire(b *engine.Batch) {
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
func (t *maskTable) forget(id engine.MaskID) {
	if k := &t.kept[id]; k.set != 0 && t.byHash[k.hash] == id {
		delete(t.byHash, k.hash)
	}
}

// append puts id at the end of the list of ids that no plan in flight names.
func (t *maskTable) append(id engine.MaskID) {
	last := t.kept[0].prev
	t.kept[id].prev, t.kept[id].next = last, 0
	t.kept[last].next, t.kept[0].prev = id, id
}

// unlink takes id out of the list.
func (t *maskTable) unlink(id engine.MaskID) {
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

// check walks the table and compares it with the plans in flight.
func (t *maskTable) check(inflight []*Plan) error {
	named := make([]int, len(t.kept))
	for _, p := range inflight {
		for i := range p.Batch.Rows {
			if id := p.Batch.Rows[i].Mask; id != 0 {
				named[id]++
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
