package gateway

import (
	"bytes"
	"sync"
	"sync/atomic"

	"github.com/coppice-llm/coppice/gateway/prompt"
	"github.com/coppice-llm/coppice/server/openai"
)

// luggage is what a request carries until a worker has begun to answer: its body, what was
// read of it, and what is asked of the router. Its memory is used again.
type luggage struct {
	body   []byte
	held   int          // bytes of it, against MaxBodiesBytes
	unread atomic.Int32 // attempts whose transport may still read the body
	prompt prompt.Prompt
	peeked openai.Peeked
	ask    ask
	staged staged
}

// mostKept is the largest body, and the most tokens, whose memory is kept for the next one.
const mostKept = 256 << 10

// put gives the memory back, but for a body that a transport may still read.
func (l *luggage) put(g *Gateway) {
	g.bodies.Add(-int64(l.held))
	l.held = 0
	l.ask.Reset()
	l.staged.reset()
	if l.unread.Load() != 0 {
		return
	}
	l.body = l.body[:0]
	if cap(l.body) > mostKept {
		l.body = nil
	}
	if cap(l.prompt.Tokens) > mostKept {
		l.prompt = prompt.Prompt{}
	}
	g.luggage.Put(l)
}

// reader is the body for one attempt.
func (l *luggage) reader() *sent {
	l.unread.Add(1)
	return &sent{Reader: bytes.NewReader(l.body), unread: &l.unread}
}

// sent is a body on its way to a worker. The transport may read it after the answer has
// come.
type sent struct {
	*bytes.Reader
	unread *atomic.Int32
	once   sync.Once
}

// Close says that the transport is done with it.
func (s *sent) Close() error {
	s.once.Do(func() { s.unread.Add(-1) })
	return nil
}
