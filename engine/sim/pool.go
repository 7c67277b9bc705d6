package sim

import (
	"encoding/binary"
	"math/bits"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// entry is one KV slot. hash chains the prefix that ends with token, see extend.
type entry struct {
	token kv.Token
	pos   int32
	hash  uint64
}

// entryBytes is an entry in host memory: token, pos and hash, little-endian.
const entryBytes = 16

// Values of entry.pos that are not positions.
const (
	posNaN      = -1 // bytes from the host with all bits set, which a model would read as NaN
	posNever    = -2 // not written yet
	posPoisoned = -3 // written by a failed row; hash is the Seq of its batch
	posRefused  = -4 // of a draft that was refused; hash is the Seq of its batch
)

// pool holds the slots of all pages, and the reads and writes of the current batch.
type pool struct {
	mode  Mode
	shift uint // log2 of PageTokens
	mask  int  // PageTokens - 1
	root  uint64
	slots []entry // page p has [p<<shift, (p+1)<<shift)

	// batch counts the calls of begin. The marks in written and readers hold the value of batch
	// when they were set; 0 means none.
	batch   uint32
	written []uint32 // by slot
	readers []reader // by page

	// The current batch, for errors.
	seq   uint64
	row   int
	known uint64 // the argument of begin
}

// reader records that rows of batch number batch read KV slots [0, slots) of a page.
type reader struct {
	batch uint32
	slots int32
}

func newPool(c *Config, root uint64) *pool {
	p := &pool{
		mode: c.Sanitize, shift: uint(bits.TrailingZeros(uint(c.PageTokens))), mask: c.PageTokens - 1, root: root,
		slots: make([]entry, c.Pages*c.PageTokens),
	}
	for i := range p.slots {
		p.slots[i].pos = posNever
	}
	if p.mode != Off {
		p.written = make([]uint32, len(p.slots))
		p.readers = make([]reader, c.Pages)
	}
	return p
}

// begin starts the next batch; known is the Seq of the last batch whose outcome was known
// when this one was planned.
func (p *pool) begin(seq, known uint64) {
	p.seq, p.known = seq, known
	p.batch++
	if p.batch == 0 { // the counter has wrapped: old marks could equal new ones
		clear(p.written)
		clear(p.readers)
		p.batch = 1
	}
}

// poison marks the KV slots that row r wrote as written by a failed row, so that every later read
// is detected.
func (p *pool) poison(r *engine.Row) {
	for pos := int(r.Start); pos < int(r.Start)+r.Len(); pos++ {
		*p.at(r.Pages, pos) = entry{token: ^kv.Token(0), pos: posPoisoned, hash: p.seq}
	}
}

// refuse marks the KV slots that row r wrote from position pos on as those of refused drafts.
func (p *pool) refuse(r *engine.Row, pos int) {
	for ; pos < int(r.Start)+r.Len(); pos++ {
		*p.at(r.Pages, pos) = entry{token: ^kv.Token(0), pos: posRefused, hash: p.seq}
	}
}

// at returns the slot of a position through a page table.
func (p *pool) at(pages []kv.PageID, pos int) *entry {
	return &p.slots[int(pages[pos>>p.shift])<<p.shift|pos&p.mask]
}

// save writes page id to host, all of whose bytes it fills.
func (p *pool) save(host []byte, id kv.PageID) {
	for i, e := range p.page(id) {
		b := host[i*entryBytes : (i+1)*entryBytes]
		binary.LittleEndian.PutUint32(b, uint32(e.token))
		binary.LittleEndian.PutUint32(b[4:], uint32(e.pos))
		binary.LittleEndian.PutUint64(b[8:], e.hash)
	}
}

// load fills page id from host, the bytes that save has written.
func (p *pool) load(id kv.PageID, host []byte) {
	page := p.page(id)
	for i := range page {
		b := host[i*entryBytes : (i+1)*entryBytes]
		page[i] = entry{
			token: kv.Token(binary.LittleEndian.Uint32(b)),
			pos:   int32(binary.LittleEndian.Uint32(b[4:])),
			hash:  binary.LittleEndian.Uint64(b[8:]),
		}
	}
}

// page returns all slots of a page.
func (p *pool) page(id kv.PageID) []entry {
	lo := int(id) << p.shift
	return p.slots[lo : lo+p.mask+1]
}
