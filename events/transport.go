package events

import (
	"context"
	"errors"
	"iter"
)

// Message is one numbered batch.
type Message struct {
	Epoch   uint64 // of the publisher, 0 = the transport does not tell
	Seq     uint64
	Payload []byte // see package wire; shared, never changed
}

// Snapshot is all that a publisher held after batch Next-1.
type Snapshot struct {
	Epoch   uint64   // of the publisher, 0 = not told
	Next    uint64   // sequence number of the first batch that it does not hold
	Batches [][]byte // payloads of BlockStored events, parents first
}

// EndSeq marks the end of a replay on the wire: -1 as vLLM writes it.
const EndSeq = ^uint64(0)

// ErrUnsupported is the answer of a [Source] whose publisher keeps no history of
// the kind that was asked for.
var ErrUnsupported = errors.New("events: the publisher does not offer this")

// History is what a publisher can tell of the past. It is safe for concurrent use.
type History interface {
	// Replay yields the retained batches with Seq >= from, ascending, without
	// gaps. The first may be later than from.
	Replay(from uint64) iter.Seq[Message]
	// Snapshot fails with ctx's error, or with ErrClosed.
	Snapshot(ctx context.Context) (Snapshot, error)
	Epoch() uint64
}

// Transport carries a publisher's batches. Start is called once, before the
// first Send, and fails if the transport can't be had; Send comes from one
// goroutine. Send never waits for a reader: what a slow one misses it sees by the
// numbers, and asks for. An error of Send is counted by the publisher, no more.
// Close ends everything; it is called once, also after a failed Start.
type Transport interface {
	Start(h History) error
	Send(m Message) error
	Close() error
}

// FrameKind tells what a [Source] has seen.
type FrameKind uint8

// The kinds of frame.
const (
	FrameBatch        FrameKind = iota
	FrameConnected              // what was sent before now may have been missed, by another publisher even
	FrameDisconnected           // nothing will come until the next FrameConnected
	FrameMalformed              // something came that is no message
	FrameElsewhere              // nothing comes of the topic asked for, but of the one told
	FrameSuccessor              // a later process of the same name, of the epoch told, sends batches
)

// Frame is what a Source has seen.
type Frame struct {
	Kind  FrameKind
	Topic string // as sent, "" where the transport has none
	Message
}

// Source is one publisher seen from afar. It connects, and connects again, by
// itself. Replay and Snapshot may be slow, and end with their ctx; they are called
// by one goroutine, while another part of the Source goes on receiving.
type Source interface {
	// Start begins. Frames arrive on the channel, in order, until Close, which
	// closes it. A Source bounds what it holds for a slow reader by not reading on.
	Start() <-chan Frame
	// Replay yields the retained batches from seq on, in order. It returns the
	// publisher's epoch, 0 if it is not told. It fails with ErrUnsupported, with
	// ctx's error, with each's, or with the transport's.
	Replay(ctx context.Context, from uint64, each func(Message) error) (epoch uint64, err error)
	// Snapshot fails with ErrUnsupported, with ctx's error, or the transport's.
	Snapshot(ctx context.Context) (Snapshot, error)
	Close() error
}
