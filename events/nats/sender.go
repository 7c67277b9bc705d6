package nats

import (
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/internal/bounds"
)

// Sender publishes a rank's batches. It is an [events.Transport].
type Sender struct {
	cfg Config
	client
	history events.History
	asked   chan *nats.Msg
}

// NewSender returns a Sender; Start connects it.
func NewSender(cfg Config) *Sender {
	s := &Sender{cfg: bounds.Fill(cfg), asked: make(chan *nats.Msg, 256)}
	s.begin()
	return s
}

// Start implements [events.Transport]. It does not wait for a server. Batches that no server
// accepts can be replayed later.
func (s *Sender) Start(h events.History) error {
	if err := s.cfg.validate(); err != nil {
		return err
	}
	s.history = h
	connect := func(o nats.Option) (*nats.Conn, error) {
		return s.cfg.connect("coppice worker "+s.cfg.Worker, func() {}, nil, o)
	}
	// A full channel drops requests; the reader asks again.
	if err := s.open(s.cfg.Retry, connect, into(s.cfg.askSubject(), s.asked)); err != nil {
		return err
	}
	s.wait.Go(s.answerAll)
	return nil
}

// Send implements [events.Transport]. While there is no server, the client buffers 8 MiB. Beyond
// that, Send returns an error, and readers see a gap.
func (s *Sender) Send(m events.Message) error {
	return s.nc().PublishMsg(&nats.Msg{Subject: s.cfg.subject(), Header: header(m.Epoch, m.Seq), Data: m.Payload})
}

// answerAll answers requests one after another.
func (s *Sender) answerAll() {
	for {
		select {
		case m := <-s.asked:
			// A failed answer ends with an error message. If even that fails, the reader times
			// out and asks again.
			if n, err := s.answer(m); err != nil {
				_ = s.nc().PublishMsg(&nats.Msg{Subject: m.Reply, Header: nats.Header{headErr: {err.Error()}, headEnd: {strconv.Itoa(n)}}})
			}
		case <-s.ctx.Done():
			return
		}
	}
}

// snapshotRequest asks for a snapshot. Any other request is the first sequence number of a
// replay, in decimal.
const snapshotRequest = "snapshot"

// answer publishes the replay or snapshot that m requests to m.Reply, and then an end message
// with the number of messages before it. It returns that number. A request without Reply is
// ignored.
func (s *Sender) answer(m *nats.Msg) (said int, err error) {
	if m.Reply == "" {
		return 0, nil
	}
	say := func(epoch, seq uint64, payload []byte) error {
		said++
		return s.nc().PublishMsg(&nats.Msg{Subject: m.Reply, Header: header(epoch, seq), Data: payload})
	}
	end := header(s.history.Epoch(), 0)
	if string(m.Data) == snapshotRequest {
		snap, err := s.history.Snapshot(s.ctx)
		if err != nil {
			return said, err
		}
		for _, payload := range snap.Batches {
			if err := say(snap.Epoch, snap.Next, payload); err != nil {
				return said, err
			}
		}
		end = header(snap.Epoch, snap.Next)
	} else {
		from, err := strconv.ParseUint(string(m.Data), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("nats: a request of %d bytes that is neither a number nor %q", len(m.Data), snapshotRequest)
		}
		for m := range s.history.Replay(from) {
			if err := say(m.Epoch, m.Seq, m.Payload); err != nil {
				return said, err
			}
		}
	}
	end[headEnd] = []string{strconv.Itoa(said)}
	return said, s.nc().PublishMsg(&nats.Msg{Subject: m.Reply, Header: end})
}

// Close implements [events.Transport]. It waits up to a second for sent batches to leave.
func (s *Sender) Close() error { return s.end(func() {}) }
