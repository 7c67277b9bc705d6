package events

import "sync"

// ring keeps the last messages for replay.
type ring struct {
	mu       sync.Mutex
	messages []Message // message seq is at seq % len, once it is full
	first    uint64    // oldest that is kept
	next     uint64
	bytes    int
	maxBytes int
	capacity uint64
}

func newRing(messages, bytes int) *ring {
	return &ring{capacity: uint64(messages), maxBytes: bytes}
}

// push keeps m, whose Seq is the next. The newest is kept whatever its size.
func (r *ring) push(m Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.next > r.first && (r.next-r.first >= r.capacity || r.bytes+len(m.Payload) > r.maxBytes) {
		old := &r.messages[r.first%r.capacity]
		r.bytes -= len(old.Payload)
		*old = Message{}
		r.first++
	}
	if at := m.Seq % r.capacity; at == uint64(len(r.messages)) {
		r.messages = append(r.messages, m)
	} else {
		r.messages[at] = m
	}
	r.bytes += len(m.Payload)
	r.next = m.Seq + 1
}

func (r *ring) since(dst []Message, from uint64) []Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	for seq := max(from, r.first); seq < r.next; seq++ {
		dst = append(dst, r.messages[seq%r.capacity])
	}
	return dst
}
