package zmq

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/coppice-llm/coppice/events"
)

// Publisher says by what a [Hub] knows a publisher.
type Publisher struct {
	// Topic of all its messages. "": any of the form kv@POD@MODEL, or POD alone, where POD is one of Pods. (The form is
	// llm-d's: vLLM's pods there publish kv@<address>@<model>.)
	Topic string
	Pods  []string // the more telling first: two publishers may share a later one
	// Host is the name or the address of the host from which it connects.
	Host           string
	ReplayEndpoint string // as in SourceConfig
}

// fits returns how well the topic names the publisher: 0 if it does not, and more for a more telling name.
func (p *Publisher) fits(topic string) int {
	if p.Topic != "" {
		if topic == p.Topic {
			return 1 + len(p.Pods)
		}
		return 0
	}
	pod := topic
	if rest, ok := strings.CutPrefix(topic, "kv@"); ok {
		pod, _, _ = strings.Cut(rest, "@")
	}
	if i := slices.Index(p.Pods, pod); i >= 0 && pod != "" {
		return len(p.Pods) - i
	}
	return 0
}

// BoundSource is the source of one publisher that connects to a [Hub]. It is an [events.Source].
type BoundSource struct {
	hub     *Hub
	who     Publisher
	asks    *Source  // for replays
	speaker net.Conn // the connection that speaks for it; guarded by the hub's mutex
	frames  chan events.Frame
	ctx     context.Context
	cancel  context.CancelFunc
	putting sync.Mutex // held while a frame is put, and to close frames
}

// Source returns a source of the publisher. Start lets connections speak for it.
func (h *Hub) Source(who Publisher) *BoundSource {
	s := &BoundSource{hub: h, who: who, asks: NewSource(SourceConfig{ReplayEndpoint: who.ReplayEndpoint, MessageBytes: h.cfg.MessageBytes})}
	s.frames = make(chan events.Frame, h.cfg.Frames)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Start implements [events.Source].
func (s *BoundSource) Start() <-chan events.Frame {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.hub.known[s] = true
	return s.frames
}

// put sends a frame to the subscriber, unless the source is closed.
func (s *BoundSource) put(f events.Frame) {
	s.putting.Lock()
	defer s.putting.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	select {
	case s.frames <- f:
	case <-s.ctx.Done():
	case <-s.hub.ctx.Done():
	}
}

// Close implements [events.Source].
func (s *BoundSource) Close() error {
	s.hub.mu.Lock()
	delete(s.hub.known, s)
	s.hub.mu.Unlock()
	s.cancel()
	s.putting.Lock()
	defer s.putting.Unlock()
	close(s.frames)
	return s.asks.Close()
}

// Replay implements [events.Source]. The epoch is unknown: 0.
func (s *BoundSource) Replay(ctx context.Context, from uint64, each func(events.Message) error) (uint64, error) {
	return s.asks.Replay(ctx, from, each)
}

// Snapshot implements [events.Source].
func (s *BoundSource) Snapshot(ctx context.Context) (events.Snapshot, error) {
	return s.asks.Snapshot(ctx)
}
