package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
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

// eventBytes returns an upper bound of the number of bytes that appendEvent writes for ev.
func eventBytes(ev *router.Event) int {
	if ev.Kind != router.Reserved {
		return eventHead
	}
	return eventOverhead + 8*len(ev.Hashes)
}

// shorten removes the hashes of ev after the first most, and does not keep their memory. The blocks
// that lose their hash count as unshared.
func shorten(ev *router.Event, most int) {
	if n := len(ev.Hashes); n > most {
		ev.UnsharedBlocks += n - most
		ev.Hashes = slices.Clone(ev.Hashes[:most])
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

// appendMessage appends m to dst, encoded in the format above.
func appendMessage(dst []byte, m *message) []byte {
	c := codec{bytes: append(dst, wireVersion)}
	c.message(m)
	return c.bytes
}

// codec writes a message or reads one. Each method describes a part of the format for both
// directions. A reading codec decodes into memory that it reuses. It trusts no length in the
// input: it allocates in proportion to the bytes that are present.
type codec struct {
	bytes  []byte // written so far, or still to be read
	reads  bool
	err    error // the first fault; from then on nothing is read
	events []router.Event
	hashes []kv.BlockHash
	claims []router.Claim
}

// check records a fault unless ok is true. A codec that writes checks nothing.
func (c *codec) check(ok bool, fault string) {
	if !c.reads || ok {
		return
	}
	if c.err == nil {
		c.err = fmt.Errorf("%w: %s", errWire, fault)
	}
	c.bytes = nil
}

const early = "it ends too early"

func (c *codec) octet(v *byte) {
	switch {
	case !c.reads:
		c.bytes = append(c.bytes, *v)
	case len(c.bytes) < 1:
		c.check(false, early)
	default:
		*v, c.bytes = c.bytes[0], c.bytes[1:]
	}
}

// fixed writes or reads 8 bytes, little-endian.
func fixed[T ~uint64](c *codec, v *T) {
	switch {
	case !c.reads:
		c.bytes = binary.LittleEndian.AppendUint64(c.bytes, uint64(*v))
	case len(c.bytes) < 8:
		c.check(false, early)
	default:
		*v, c.bytes = T(binary.LittleEndian.Uint64(c.bytes)), c.bytes[8:]
	}
}

// number writes or reads a varint. A value above most is a fault.
func number[T ~int | ~uint32 | ~uint64](c *codec, v *T, most uint64) {
	if !c.reads {
		c.bytes = binary.AppendUvarint(c.bytes, uint64(*v))
		return
	}
	n, size := binary.Uvarint(c.bytes)
	if size <= 0 || size > 1 && c.bytes[size-1] == 0 || n > most {
		c.check(false, "a number out of range, or not in its shortest form")
		return
	}
	*v, c.bytes = T(n), c.bytes[size:]
}

// leastEvent, leastClaim and hashBytes are the smallest encoded sizes of an event, a claim and a
// hash. With the number of bytes left they bound the counts in a message.
const leastEvent, leastClaim, hashBytes = 4, 26, 8

const anyNumber = 1<<64 - 1

// decode decodes payload into m. The events and claims of m are valid until the next call. The
// error wraps errWire; it is errVersion for a message of another version.
func (c *codec) decode(payload []byte, m *message) error {
	*c = codec{bytes: payload, reads: true, events: c.events[:0], hashes: c.hashes[:0], claims: c.claims[:0]}
	*m = message{}
	var version byte
	if c.octet(&version); version > 0 && version <= mostVersion && version != wireVersion {
		return errVersion
	}
	c.check(version == wireVersion, "no version")
	c.message(m)
	c.check(len(c.bytes) == 0, "bytes after its end")
	return c.err
}

func (c *codec) message(m *message) {
	c.octet((*byte)(&m.kind))
	fixed(c, &m.replica)
	c.check(m.replica != 0, "no sender")
	fixed(c, &m.epoch)
	number(c, &m.blockTokens, 1<<16)
	number(c, &m.seq, anyNumber-1)
	switch m.kind {
	case wireHere, wireGoodbye:
	case wireAsk:
		fixed(c, &m.addressee)
	case wireEvents:
		c.eventList(m)
		c.check(m.seq != 0 && bits.Len64(m.seq) < 64 && len(m.events) > 0, "events without numbers")
	case wireSnapshot:
		number(c, &m.lastID, anyNumber)
		number(c, &m.piece, maxPieces-1)
		number(c, &m.pieces, maxPieces)
		c.check(m.piece < m.pieces, "a piece beyond the last")
		c.eventList(m)
		m.claims = list(c, m.claims, &c.claims, leastClaim, anyNumber)
		for i := range m.claims {
			c.claim(&m.claims[i])
		}
	default:
		c.check(false, "an unknown kind")
	}
}

// list writes the length of all, or reads one and returns a cleared list of that length in memory.
// least is the smallest size of an element in bytes, most the largest length.
func list[T any](c *codec, all []T, memory *[]T, least int, most uint64) []T {
	n := len(all)
	number(c, &n, min(most, uint64(len(c.bytes)/least)))
	if !c.reads || n == 0 {
		return all
	}
	*memory = slices.Grow((*memory)[:0], n)[:n]
	clear(*memory)
	return *memory
}

func (c *codec) eventList(m *message) {
	if n := len(c.bytes) / hashBytes; c.reads && cap(c.hashes) < n {
		c.hashes = make([]kv.BlockHash, 0, n) // events refer to it, so it must not move
	}
	m.events = list(c, m.events, &c.events, leastEvent, batchEvents)
	for i := range m.events {
		ev := &m.events[i]
		if c.reads {
			ev.Replica, ev.Epoch = m.replica, m.epoch
			if m.kind == wireEvents {
				ev.Seq = m.seq + uint64(i)
			}
		}
		c.event(ev)
		c.check(m.kind == wireEvents || ev.Kind == router.Reserved && ev.Session == 0, "an event in a snapshot that is not Reserved, or has a session")
	}
}

func (c *codec) event(ev *router.Event) {
	session := ev.Session != 0
	mark := byte(ev.Kind) | flag(session, markSession) | flag(ev.Untold, markUntold) | flag(ev.Nowhere, markNowhere)
	c.octet(&mark)
	if c.reads {
		session, ev.Untold, ev.Nowhere = mark&markSession != 0, mark&markUntold != 0, mark&markNowhere != 0
		ev.Kind = router.EventKind(mark & markKind)
	}
	reserved := ev.Kind == router.Reserved
	c.check(mark&0x80 == 0 && ev.Kind <= router.Released && (reserved || !ev.Untold) && (!session || ev.Kind != router.Progressed) &&
		(!ev.Nowhere || session && ev.Kind == router.Released), "an unknown event")
	number(c, &ev.ID, anyNumber)
	c.tokens(&ev.ComputedTokens, &ev.OutputTokens)
	if session {
		c.session(&ev.Session, &ev.Stamp)
	}
	if reserved || session && !ev.Nowhere {
		c.worker(&ev.Worker)
	}
	if !reserved {
		return
	}
	c.tokens(&ev.PromptTokens, &ev.UncachedTokens, &ev.UnsharedBlocks)
	n, from := len(ev.Hashes), len(c.hashes)
	number(c, &n, uint64(len(c.bytes)/hashBytes))
	if c.reads {
		c.hashes = c.hashes[:from+n]
		ev.Hashes = c.hashes[from : from+n : from+n]
	}
	for i := range ev.Hashes {
		fixed(c, &ev.Hashes[i])
	}
}

func (c *codec) claim(claim *router.Claim) {
	mark, age := flag(claim.Nowhere, markNowhere), uint64(claim.Age/time.Millisecond)
	c.octet(&mark)
	c.check(mark&^markNowhere == 0, "an unknown claim")
	c.session(&claim.Session, &claim.Stamp)
	fixed(c, &claim.Replica)
	c.check(claim.Replica != 0, "a claim without a router")
	number(c, &age, mostAge)
	if c.reads {
		claim.Nowhere, claim.Age = mark != 0, time.Duration(age)*time.Millisecond
	}
	if !claim.Nowhere {
		c.worker(&claim.Worker)
	}
}

// mostAge is the largest age of a claim, in milliseconds. A time.Duration can hold it.
const mostAge = 1 << 42

// session writes or reads a session and the stamp of its claim.
func (c *codec) session(id, stamp *uint64) {
	fixed(c, id)
	fixed(c, stamp)
	c.check(*id != 0 && *stamp != 0 && *stamp <= router.MaxStamp, "a claim without a session, or with an invalid stamp")
}

func (c *codec) worker(w *kv.Rank) {
	fixed(c, &w.Worker)
	number(c, &w.DP, 1<<32-1)
}

func (c *codec) tokens(all ...*int) {
	for _, n := range all {
		number(c, n, router.MaxPromptTokens)
	}
}

// flag returns mark if on is true, else 0.
func flag(on bool, mark byte) byte {
	if on {
		return mark
	}
	return 0
}
