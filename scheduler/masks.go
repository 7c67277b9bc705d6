package scheduler

import (
	"fmt"
	"math/bits"
	"slices"
	"weak"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/internal/scheduler/planted"
	"github.com/coppice-llm/coppice/kv"
)

// maskTable knows which masks the backend keeps. Rows that may sample the same tokens name
// the same mask, whatever made it: a state of a grammar that comes again, another sample,
// another request of the same format. So bits go to the backend when they are new, or were
// unused for so long that their id was needed for others.
//
//	ids that no plan in flight names stand in a list, the one unused for longest first
type maskTable struct {
	kept    []keptMask // by id; kept[0] is the ends of the list
	most    int        // Info.MaxMasks
	byHash  map[uint64]engine.MaskID
	formats map[formatKey]*formatMasks
	words   int
	work    []uint64 // bits of the row being planned, made when a row has a format
	sets    uint64   // masks that were set so far
	rows    uint64   // that named one so far
	fault   planted.Fault
}

// keptMask mirrors what the backend keeps under an id.
type keptMask struct {
	bits       []uint64 // the table's own; they change only while no plan in flight names the id
	hash       uint64
	set        uint64 // maskTable.sets when it was set; 0: dropped
	last       uint64 // Seq of the last plan that names it
	rows       int    // of plans in flight that name it
	prev, next engine.MaskID
}

// maskPlace is where a mask was kept.
type maskPlace struct {
	id  engine.MaskID
	set uint64 // keptMask.set then, 0: nowhere yet
}

// fixedMask is one that does not change from row to row.
type fixedMask struct {
	bits []uint64
	maskPlace
}

// formatMasks are the places of the masks of a format, for requests with equal stop tokens.
type formatMasks struct{ places map[formatState]maskPlace }

// formatState decides, in a format, which tokens a row may sample.
type formatState struct {
	state uint64 // of the matcher
	phase uint64 // 0 within MinTokens, then 1, or 2 where stop tokens are allowed
}

// formatKey names a format and does not keep it alive.
type formatKey struct {
	format weak.Pointer[grammar.Grammar]
	stops  string
}

// Bounds of what is remembered of formats; beyond them it is forgotten.
const (
	mostFormats = 256
	mostStates  = 1024 // of each
)

// maskLife is after how many plans a mask that no row named is dropped, so that a backend
// need not keep the memory.
const maskLife = 4096

func newMaskTable(info *engine.Info) maskTable {
	return maskTable{kept: make([]keptMask, 1), most: info.MaxMasks, words: info.MaskWords(), byHash: map[uint64]engine.MaskID{}, formats: map[formatKey]*formatMasks{}}
}

// reset forgets what a lost backend kept.
func (t *maskTable) reset() {
	t.kept = append(t.kept[:0], keptMask{})
	clear(t.byHash)
}

// format returns the places of the masks of a request with a format. A request that
// allows only some tokens has its own.
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

// keep remembers a place.
func (f *formatMasks) keep(at formatState, place maskPlace) {
	if len(f.places) >= mostStates {
		clear(f.places)
	}
	f.places[at] = place
}

// scratch is memory for a mask, until the next call.
func (t *maskTable) scratch() []uint64 {
	if t.work == nil {
		t.work = make([]uint64, t.words)
	}
	return t.work
}

// fixed returns the id of a mask for a row of b; 0 for nil, which allows all tokens.
func (t *maskTable) fixed(b *engine.Batch, f *fixedMask) engine.MaskID {
	if f == nil {
		return 0
	}
	if !t.still(f.maskPlace) {
		f.maskPlace = t.find(b, f.bits)
	}
	return t.name(b, f.id)
}

// still reports whether a mask is kept where it was.
func (t *maskTable) still(p maskPlace) bool {
	return p.set != 0 && int(p.id) < len(t.kept) && t.kept[p.id].set == p.set
}

// name counts a row of b, which is a plan in flight from now on.
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

// done is the end of a row that named id.
func (t *maskTable) done(id engine.MaskID) {
	k := &t.kept[id]
	if k.rows--; k.rows == 0 {
		t.append(id)
	}
}

// allows reports whether a mask has a token of the vocabulary.
func (t *maskTable) allows(id engine.MaskID, token kv.Token) bool {
	return id == 0 || t.kept[id].bits[token/64]>>(token%64)&1 == 1
}

// find returns where these bits are, and sets a mask in b if they are nowhere.
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

// room returns an id of the list: a new one while there are some, else the one unused for
// longest. There is always one, as the backend keeps as many masks as rows can be in flight.
func (t *maskTable) room() engine.MaskID {
	if first := t.kept[0].next; first != 0 && (len(t.kept) > t.most || t.kept[first].set == 0) {
		return first
	}
	if len(t.kept) > t.most {
		panic(fmt.Sprintf("scheduler: plans in flight name all %d masks", t.most))
	}
	t.kept = append(t.kept, keptMask{})
	id := engine.MaskID(len(t.kept) - 1)
	t.append(id)
	return id
}

// expire has b drop the mask that was unused for longest, if that is long.
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

// forget leaves the bits of id unknown.
func (t *maskTable) forget(id engine.MaskID) {
	if k := &t.kept[id]; k.set != 0 && t.byHash[k.hash] == id {
		delete(t.byHash, k.hash)
	}
}

func (t *maskTable) append(id engine.MaskID) {
	last := t.kept[0].prev
	t.kept[id].prev, t.kept[id].next = last, 0
	t.kept[last].next, t.kept[0].prev = id, id
}

func (t *maskTable) unlink(id engine.MaskID) {
	k := &t.kept[id]
	t.kept[k.prev].next, t.kept[k.next].prev = k.next, k.prev
}

// sameMask compares two masks of one length, 64 words at a time, which is one call of the
// runtime's memory comparison.
func sameMask(a, b []uint64) bool {
	for len(a) >= 64 && len(b) >= 64 {
		if *(*[64]uint64)(a) != *(*[64]uint64)(b) {
			return false
		}
		a, b = a[64:], b[64:]
	}
	return slices.Equal(a, b)
}

// hashMask takes bits in four strands, so that a multiplication need not wait for the one
// before, and four words to each. Equal hashes are compared word by word.
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

// check walks the table, beside the plans that are in flight.
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
			return fmt.Errorf("scheduler: mask %d stands in the list twice", id)
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
