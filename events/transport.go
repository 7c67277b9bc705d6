package events

import (
	"context"
	"errors"
	"iter"
)

// Message is one batch with its number, as it travels.
type Message struct {
	Epoch   uint64 // of the publisher; 0: the transport has none
	Seq     uint64
	Payload []byte // see package wire; shared, never changed
}

// Snapshot is the whole contents of a publisher's cache after batch Next-1.
type Snapshot struct {
	Epoch   uint64   // of the publisher; 0: unknown
	Next    uint64   // number of the first batch that it does not include
	Batches [][]byte // payloads of BlockStored events, parents first
}

// EndSeq marks the end of a replay on the wire: -1 as vLLM writes it.
const EndSeq = ^uint64(0)

// ErrUnreachable is wrapped by errors of Replay and Snapshot of a [Source] if nothing came back from
// the publisher. Such an error says nothing about the publisher's cache.
var ErrUnreachable = errors.New("events: no answer from the publisher")

// ErrUnsupported is returned by Replay and Snapshot of a [Source] whose publisher does not offer
// them.
var ErrUnsupported = errors.New("events: the publisher does not offer this")

// History gives transports the past batches and the contents of a publisher's cache. It is safe
// for concurrent use.
type History interface {
	// Replay yields the kept batches with Seq >= from, ascending, without gaps. The
	// first may be later than from.
	Replay(from uint64) iter.Seq[Message]
	// Snapshot fails with ctx's error, or with ErrClosed.
	Snapshot(ctx context.Context) (Snapshot, error)
	Epoch() uint64
}

// Transport carries a publisher's batches. Start is called once, before the first Send, and
// fails if the transport is unavailable. Only one goroutine calls Send. Send never waits for a
// reader: a slow reader notices lost batches by the numbers and asks for them. The publisher
// only counts errors of Send. Close ends everything; it is called once, also after a failed
// Start.
type Transport interface {
	Start(h History) error
	Send(m Message) error
	Close() error
}

// FrameKind is the kind of a [Source]'s observation.
type FrameKind uint8

// The kinds of frame.
const (
	FrameBatch        FrameKind = iota
	FrameConnected              // a new connection: messages before it may have been missed, and the publisher may be another one
	FrameDisconnected           // no frame follows until the next FrameConnected
	FrameMalformed              // a message that can't be read
	FrameElsewhere              // no message of the wanted topic arrives, but one of Topic
	FrameSuccessor              // a later process of the same name, with this Epoch, sends batches
)

// Frame is one observation of a Source.
type Frame struct {
	Kind  FrameKind
	Topic string // as sent; empty if the transport has none
	Message
}

// Source is one remote publisher. It connects and reconnects by itself. Replay and
// Snapshot may be slow, and end with their ctx. One goroutine calls them, while the
// Source continues to receive.
type Source interface {
	// Start begins. Frames arrive on the channel, in order. Close closes the channel. While its
	// reader is slow, a Source stops reading from the network, which bounds its memory.
	Start() <-chan Frame
	// Replay calls each for the batches that the publisher keeps, from number from on, in order.
	// It returns the publisher's epoch, or 0 if that is unknown. It fails with ErrUnsupported,
	// or with the error of ctx, of each, or of the transport. If nothing came back, the error may
	// wrap ErrUnreachable.
	Replay(ctx context.Context, from uint64, each func(Message) error) (epoch uint64, err error)
	// Snapshot fails with ErrUnsupported, with ctx's error, or the transport's. If nothing came
	// back, the error may wrap ErrUnreachable.
	Snapshot(ctx context.Context) (Snapshot, error)
	Close() error
}
