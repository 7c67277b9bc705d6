package gateway

import (
	"bytes"
	"sync"
	"sync/atomic"

	"github.com/coppice-llm/coppice/gateway/internal/dispatch"
	"github.com/coppice-llm/coppice/gateway/internal/prompt"
	"github.com/coppice-llm/coppice/openai"
)

// requestBuffer holds the parts of a request needed until a worker begins to answer: its body,
// the prompt read from it, and the question to the dispatcher. Its memory is reused for later
// requests.
type requestBuffer struct {
	body   []byte
	held   int          // body bytes that Gateway.bodies counts
	unread atomic.Int32 // attempts whose transport may still be reading the body
	prompt prompt.Prompt
	peeked openai.Peeked
	ask    dispatch.Ask
}

// maxKept is the largest body in bytes, and the largest prompt in tokens, whose memory is kept.
const maxKept = 256 << 10

// reset clears b for another request. It returns false if b must not be reused, because a
// transport may still be reading the body.
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

// reader returns a new reader of the body for one attempt.
func (b *requestBuffer) reader() *bodyReader {
	b.unread.Add(1)
	return &bodyReader{Reader: bytes.NewReader(b.body), unread: &b.unread}
}

// bodyReader is the body of an outgoing request. The transport may still read it after the
// answer has come, until it calls Close.
type bodyReader struct {
	*bytes.Reader
	unread *atomic.Int32
	once   sync.Once
}

// Close records that the transport has finished with the body. It may be called repeatedly.
func (r *bodyReader) Close() error {
	r.once.Do(func() { r.unread.Add(-1) })
	return nil
}
