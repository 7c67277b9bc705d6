package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// The wire format between routers, version 2; version 1 had no sessions. Numbers are
// unsigned varints in their shortest form, except those marked 8: 8 bytes, little-endian.
//
// message: version 1 byte, kind 1 byte, replica 8, epoch 8, block tokens, seq, then by kind
//
//	here, goodbye:  nothing; seq is that of the last event
//	ask:            addressee 8, 0 for all; seq is that of the last event
//	events:         count, that many events; seq is that of the first one
//	snapshot:       last ID, piece, pieces, count, that many events, count, that many
//	                claims; seq is that of the last event included
//
// event: kind 1 byte (+ marks), ID, computed, output; with markSession: session 8, stamp 8; then
//
//	of Reserved     worker 8, rank, prompt, uncached, unshared, count, that many hashes 8
//	of Released     with markSession and without markNowhere: worker 8, rank
//
// claim: 1 byte, 0 or markNowhere; session 8, stamp 8, replica 8, age in milliseconds;
//
//	without markNowhere: worker 8, rank
const (
	wireVersion = 2
	mostVersion = 31 // the highest version that there can ever be; a message with a higher first byte is malformed

	markSession = 0x40 // of Reserved, or of Released that takes a session back; never in a snapshot
	markUntold  = 0x20 // of Reserved
	markNowhere = 0x10 // of Released with markSession
	markKind    = 0x0f
)

// wireKind is the kind of a message.
type wireKind uint8

const (
	wireHere wireKind = iota
	wireGoodbye
	wireAsk
	wireEvents
	wireSnapshot
	wireKinds
)

// Limits of a message, and upper bounds of the encoded sizes of its parts.
const (
	batchEvents   = 256
	batchBytes    = 64 << 10
	pieceBytes    = 256 << 10
	maxPieces     = 4096
	eventHashes   = 16384 // further blocks of a prompt are only counted
	eventHead     = 1 + 3*binary.MaxVarintLen64 + 2*8 + 8 + binary.MaxVarintLen32
	eventOverhead = eventHead + 4*binary.MaxVarintLen64
	claimBytes    = 1 + 3*8 + binary.MaxVarintLen64 + 8 + binary.MaxVarintLen32
	messageHead   = 2 + 8 + 8 + 7*binary.MaxVarintLen64
)

// message is a decoded message. Its events and claims are valid until the next decode.
type message struct {
	kind        wireKind
	replica     router.ReplicaID
	epoch       uint64
	blockTokens int
	seq         uint64
	addressee   router.ReplicaID // of an ask: the addressee, 0 for all
	lastID      uint64           // of a snapshot
	piece       int
	pieces      int
	events      []router.Event
	claims      []router.Claim // of a snapshot
}

// appendMessage appends m to dst, encoded in the format above.
func appendMessage(dst []byte, m *message) []byte {
	dst = append(dst, wireVersion, byte(m.kind))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(m.replica))
	dst = binary.LittleEndian.AppendUint64(dst, m.epoch)
	dst = binary.AppendUvarint(dst, uint64(m.blockTokens))
	dst = binary.AppendUvarint(dst, m.seq)
	switch m.kind {
	case wireAsk:
		return binary.LittleEndian.AppendUint64(dst, uint64(m.addressee))
	case wireSnapshot:
		dst = binary.AppendUvarint(dst, m.lastID)
		dst = binary.AppendUvarint(dst, uint64(m.piece))
		dst = binary.AppendUvarint(dst, uint64(m.pieces))
	case wireHere, wireGoodbye:
		return dst
	}
	dst = binary.AppendUvarint(dst, uint64(len(m.events)))
	for i := range m.events {
		dst = appendEvent(dst, &m.events[i])
	}
	if m.kind != wireSnapshot {
		return dst
	}
	dst = binary.AppendUvarint(dst, uint64(len(m.claims)))
	for i := range m.claims {
		dst = appendClaim(dst, &m.claims[i])
	}
	return dst
}

func appendEvent(dst []byte, ev *router.Event) []byte {
	kind := byte(ev.Kind)
	for _, m := range [...]struct {
		on   bool
		mark byte
	}{{ev.Session != 0, markSession}, {ev.Untold, markUntold}, {ev.Nowhere, markNowhere}} {
		if m.on {
			kind |= m.mark
		}
	}
	dst = append(dst, kind)
	dst = binary.AppendUvarint(dst, ev.ID)
	dst = binary.AppendUvarint(dst, uint64(ev.ComputedTokens))
	dst = binary.AppendUvarint(dst, uint64(ev.OutputTokens))
	if ev.Session != 0 {
		dst = binary.LittleEndian.AppendUint64(dst, ev.Session)
		dst = binary.LittleEndian.AppendUint64(dst, ev.Stamp)
	}
	if ev.Kind == router.Reserved || ev.Session != 0 && !ev.Nowhere {
		dst = appendWorker(dst, ev.Worker)
	}
	if ev.Kind != router.Reserved {
		return dst
	}
	for _, n := range [...]uint64{uint64(ev.PromptTokens), uint64(ev.UncachedTokens), uint64(ev.UnsharedBlocks), uint64(len(ev.Hashes))} {
		dst = binary.AppendUvarint(dst, n)
	}
	for _, h := range ev.Hashes {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(h))
	}
	return dst
}

func appendWorker(dst []byte, w kv.Rank) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(w.Worker))
	return binary.AppendUvarint(dst, uint64(w.DP))
}

func appendClaim(dst []byte, c *router.Claim) []byte {
	mark := byte(0)
	if c.Nowhere {
		mark = markNowhere
	}
	dst = append(dst, mark)
	for _, n := range [...]uint64{c.Session, c.Stamp, uint64(c.Replica)} {
		dst = binary.LittleEndian.AppendUint64(dst, n)
	}
	dst = binary.AppendUvarint(dst, uint64(c.Age/time.Millisecond))
	if c.Nowhere {
		return dst
	}
	return appendWorker(dst, c.Worker)
}

// eventBytes returns an upper bound of the number of bytes that appendEvent writes for ev.
func eventBytes(ev *router.Event) int {
	if ev.Kind != router.Reserved {
		return eventHead
	}
	return eventOverhead + 8*len(ev.Hashes)
}

// shorten removes the hashes of ev after the first most. The blocks that lose their hash count
// as unshared.
func shorten(ev *router.Event, most int) {
	if n := len(ev.Hashes); n > most {
		ev.UnsharedBlocks += n - most
		ev.Hashes = ev.Hashes[:most]
	}
}

// fitting returns how many of events, from the first on, fit into a message of most bytes: at
// least one, at most batchEvents.
func fitting(events []router.Event, most int) int {
	n, size := 0, messageHead
	for n < len(events) && n < batchEvents {
		if size += eventBytes(&events[n]); size > most && n > 0 {
			break
		}
		n++
	}
	return n
}

var (
	errWire    = errors.New("gateway: malformed message of a replica")
	errVersion = fmt.Errorf("%w: another version", errWire)
)

// decoder decodes messages into memory that it reuses. It trusts no length in the input: it
// allocates in proportion to the bytes that are present.
type decoder struct {
	rest   []byte
	err    error
	events []router.Event
	hashes []kv.BlockHash
	claims []router.Claim
}

// fail records the first fault. From then on all reads return 0.
func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", errWire, what)
	}
	d.rest = nil
}

func (d *decoder) byte() byte {
	if len(d.rest) < 1 {
		d.fail("it ends too early")
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return b
}

// fixed reads 8 bytes, little-endian.
func (d *decoder) fixed() uint64 {
	if len(d.rest) < 8 {
		d.fail("it ends too early")
		return 0
	}
	v := binary.LittleEndian.Uint64(d.rest)
	d.rest = d.rest[8:]
	return v
}

// number reads a varint. A value above most is a fault.
func (d *decoder) number(most uint64) uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || n > 1 && d.rest[n-1] == 0 || v > most {
		d.fail("a number out of range, or not in its shortest form")
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// leastEvent, leastClaim and hashBytes are the smallest encoded sizes of an event, a claim and a
// hash. With the number of bytes left they bound the counts in a message.
const leastEvent, leastClaim, hashBytes = 4, 26, 8

const anyNumber = 1<<64 - 1

// decode decodes payload into m. The events and claims of m are valid until the next call. The
// error wraps errWire; it is errVersion for a message of another version.
func (d *decoder) decode(payload []byte, m *message) error {
	*d = decoder{rest: payload, events: d.events[:0], hashes: d.hashes[:0], claims: d.claims[:0]}
	*m = message{}
	switch v := d.byte(); {
	case v == wireVersion:
	case v > 0 && v <= mostVersion:
		d.rest, d.err = nil, errVersion
	default:
		d.fail("no version")
	}
	m.kind = wireKind(d.byte())
	m.replica, m.epoch = router.ReplicaID(d.fixed()), d.fixed()
	m.blockTokens, m.seq = int(d.number(1<<16)), d.number(anyNumber-1)
	switch {
	case d.err != nil:
	case m.kind >= wireKinds:
		d.fail("an unknown kind")
	case m.replica == 0:
		d.fail("no sender")
	case m.kind == wireAsk:
		m.addressee = router.ReplicaID(d.fixed())
	case m.kind == wireSnapshot:
		m.lastID = d.number(anyNumber)
		m.piece, m.pieces = int(d.number(maxPieces-1)), int(d.number(maxPieces))
		if m.piece >= m.pieces {
			d.fail("a piece beyond the last")
		}
		d.readEvents(m)
		d.readClaims(m)
	case m.kind == wireEvents:
		if d.readEvents(m); m.seq == 0 || len(m.events) == 0 || bits.Len64(m.seq) == 64 {
			d.fail("events without numbers")
		}
	}
	if d.err == nil && len(d.rest) > 0 {
		d.fail("bytes after its end")
	}
	return d.err
}

func (d *decoder) readEvents(m *message) {
	// Events refer to the hashes, so their memory must not move.
	if n := len(d.rest) / hashBytes; cap(d.hashes) < n {
		d.hashes = make([]kv.BlockHash, 0, n)
	}
	n := int(d.number(min(batchEvents, uint64(len(d.rest)/leastEvent))))
	for i := range n {
		ev := router.Event{Replica: m.replica, Epoch: m.epoch}
		if m.kind == wireEvents {
			ev.Seq = m.seq + uint64(i)
		}
		if d.readEvent(&ev); d.err != nil {
			return
		}
		if m.kind == wireSnapshot && (ev.Kind != router.Reserved || ev.Session != 0) {
			d.fail("an event in a snapshot that is not Reserved, or has a session")
			return
		}
		d.events = append(d.events, ev)
	}
	m.events = d.events
}

// readEvent decodes an event and checks that its marks fit its kind.
func (d *decoder) readEvent(ev *router.Event) {
	mark := d.byte()
	ev.Kind = router.EventKind(mark & markKind)
	ev.Untold, ev.Nowhere = mark&markUntold != 0, mark&markNowhere != 0
	session := mark&markSession != 0
	ev.ID = d.number(anyNumber)
	ev.ComputedTokens, ev.OutputTokens = d.tokens(), d.tokens()
	switch {
	case d.err != nil:
		return
	case ev.Kind > router.Released, mark&0x80 != 0, ev.Kind != router.Reserved && ev.Untold,
		ev.Nowhere && (ev.Kind != router.Released || !session), session && ev.Kind == router.Progressed:
		d.fail("an unknown event")
		return
	}
	if session {
		ev.Session, ev.Stamp = d.session()
	}
	if ev.Kind == router.Reserved || session && !ev.Nowhere {
		ev.Worker = d.worker()
	}
	if ev.Kind != router.Reserved {
		return
	}
	ev.PromptTokens, ev.UncachedTokens, ev.UnsharedBlocks = d.tokens(), d.tokens(), d.tokens()
	n := int(d.number(uint64(len(d.rest) / hashBytes)))
	from := len(d.hashes)
	for range n {
		d.hashes = append(d.hashes, kv.BlockHash(d.fixed()))
	}
	ev.Hashes = d.hashes[from:len(d.hashes):len(d.hashes)]
}

func (d *decoder) readClaims(m *message) {
	n := int(d.number(uint64(len(d.rest) / leastClaim)))
	for range n {
		c := router.Claim{}
		switch d.byte() {
		case 0:
		case markNowhere:
			c.Nowhere = true
		default:
			d.fail("an unknown claim")
		}
		c.Session, c.Stamp = d.session()
		if c.Replica = router.ReplicaID(d.fixed()); c.Replica == 0 {
			d.fail("a claim without a router")
		}
		c.Age = time.Duration(d.number(mostAge)) * time.Millisecond
		if !c.Nowhere {
			c.Worker = d.worker()
		}
		if d.err != nil {
			return
		}
		d.claims = append(d.claims, c)
		m.claims = d.claims
	}
}

// mostAge is the largest age of a claim, in milliseconds. A time.Duration can hold it.
const mostAge = 1 << 42

// session reads a session and the stamp of its claim.
func (d *decoder) session() (id, stamp uint64) {
	if id, stamp = d.fixed(), d.fixed(); id == 0 || stamp == 0 || stamp > router.MaxStamp {
		d.fail("a claim without a session, or with an invalid stamp")
	}
	return id, stamp
}

func (d *decoder) worker() kv.Rank {
	return kv.Rank{Worker: kv.WorkerID(d.fixed()), DP: uint32(d.number(1<<32 - 1))}
}

func (d *decoder) tokens() int { return int(d.number(router.MaxPromptTokens)) }
