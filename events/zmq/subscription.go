package zmq

import (
	"bytes"
	"encoding/binary"
	"net"
	"slices"
	"sync"

	"github.com/coppice-llm/coppice/events"
)

const (
	maxPrefixes = 64
	maxPrefix   = 1 << 10 // bytes
)

// subscription is one subscriber of a [Sender]: the topic prefixes that it wants, and its queue.
type subscription struct {
	topic []byte
	cfg   *SenderConfig

	mu       sync.Mutex
	prefixes [][]byte
	queue    []events.Message
	bytes    int

	wake chan struct{} // capacity 1
}

// offer queues m if the subscriber wants the sender's topic. It returns false if the queue is
// full.
func (q *subscription) offer(m events.Message) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !slices.ContainsFunc(q.prefixes, func(p []byte) bool { return bytes.HasPrefix(q.topic, p) }) {
		return true
	}
	if len(q.queue) >= q.cfg.QueueMessages || q.bytes > 0 && q.bytes+len(m.Payload) > q.cfg.QueueBytes {
		return false
	}
	q.queue = append(q.queue, m)
	q.bytes += len(m.Payload)
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return true
}

// setPrefix adds a prefix (what 1) or removes it (what 0). It returns false if there would be
// too many prefixes or the prefix is too long.
func (q *subscription) setPrefix(what byte, prefix []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := slices.IndexFunc(q.prefixes, func(p []byte) bool { return bytes.Equal(p, prefix) })
	switch {
	case what == 0 && at >= 0:
		q.prefixes = slices.Delete(q.prefixes, at, at+1)
	case what == 1:
		if len(q.prefixes) == maxPrefixes || len(prefix) > maxPrefix {
			return false
		}
		q.prefixes = append(q.prefixes, prefix)
	}
	return true
}

// serveSubscriber serves one SUB socket until it disconnects or the sender closes. It returns
// false if the peer is not a SUB socket.
func (s *Sender) serveSubscriber(nc net.Conn) bool {
	c, err := handshake(nc, "PUB", 2*maxPrefix, handshakeTimeout, "SUB", "XSUB")
	if err != nil {
		s.refused.Add(1)
		return false
	}
	c.timeout = s.cfg.WriteTimeout
	q := &subscription{topic: []byte(s.cfg.Topic), cfg: &s.cfg, wake: make(chan struct{}, 1)}
	s.mu.Lock()
	s.subs[q] = true
	s.mu.Unlock()
	gone := make(chan struct{})
	s.wait.Go(func() {
		defer close(gone)
		s.listen(c, q)
	})
	s.deliver(c, q, gone)
	_ = nc.Close() // ends listen
	<-gone
	s.mu.Lock()
	delete(s.subs, q)
	s.mu.Unlock()
	return true
}

// listen reads the subscriber's subscriptions, which are messages in ZMTP 3.0 and commands in
// 3.1, until the connection ends.
func (s *Sender) listen(c *conn, q *subscription) {
	for {
		frames, command, err := c.read()
		if err != nil {
			return
		}
		ok := true
		switch body := frames[0]; {
		case command == "SUBSCRIBE":
			ok = q.setPrefix(1, body)
		case command == "CANCEL":
			ok = q.setPrefix(0, body)
		case command == "" && len(frames) == 1 && len(body) > 0 && body[0] <= 1:
			ok = q.setPrefix(body[0], body[1:])
		}
		if !ok {
			s.refused.Add(1)
			return
		}
	}
}

// deliver writes the queued messages to the subscriber until gone is closed, the sender closes
// or a write fails. It flushes after all messages that were queued.
func (s *Sender) deliver(c *conn, q *subscription, gone chan struct{}) {
	var batch []events.Message
	var number [8]byte
	for {
		select {
		case <-q.wake:
		case <-gone:
			return
		case <-s.ctx.Done():
			return
		}
		q.mu.Lock()
		batch, q.queue = q.queue, batch[:0]
		q.mu.Unlock()
		for i, m := range batch {
			binary.BigEndian.PutUint64(number[:], m.Seq)
			if c.write(q.topic, number[:], m.Payload) != nil {
				return
			}
			batch[i] = events.Message{}
			q.mu.Lock()
			q.bytes -= len(m.Payload)
			q.mu.Unlock()
		}
		if c.flush() != nil {
			return
		}
	}
}
