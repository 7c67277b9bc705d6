package gateway

import (
	"bytes"
	"sync"
	"sync/atomic"

	"github.com/coppice-llm/coppice/internal/gateway/dispatch"
	"github.com/coppice-llm/coppice/internal/gateway/prompt"
	"github.com/coppice-llm/coppice/openai"
)

// requestBuffer is what a request needs until a worker has begun to answer: its body, what was
// read of it, and what is asked of the dispatcher. Its memory is used again.
type requestBuffer struct {
	body   []byte
	held   int          // bytes of it, against MaxBodiesBytes
	unread atomic.Int32 // attempts whose transport may still read the body
	prompt prompt.Prompt
	peeked openai.Peeked
	ask    dispatch.Ask
}

// maxKept is the largest body, and the most tokens, whose memory is kept for the next request.
const maxKept = 256 << 10

// reset forgets the request. It reports whether the memory may be used again: a transport may
// still read the body.
func (b *requestBuffer) reset() bool {
	b.held = 0
	b.ask.Reset()
	if b.unread.Load() != 0 {
		return false
	}
	b.body = b.body[:0]
	if cap(b.body) > maxKept {
		b.body = nil
	}
	if cap(b.prompt.Tokens) > maxKept {
		b.prompt = prompt.Prompt{}
	}
	return true
}

// reader is the body for one attempt.
func (b *requestBuffer) reader() *bodyReader {
	b.unread.Add(1)
	return &bodyReader{Reader: bytes.NewReader(b.body), unread: &b.unread}
}

// bodyReader is a body on its way to a worker. The transport may read it after the answer has
// come.
type bodyReader struct {
	*bytes.Reader
	unread *atomic.Int32
	once   sync.Once
}

// Close says that the transport is done with the body.
func (r *bodyReader) Close() error {
	r.once.Do(func() { r.unread.Add(-1) })
	return nil
}
