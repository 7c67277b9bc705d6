package gateway

import (
	"testing"
	"time"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/events/eventstest"
	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/kv"
)

// overNATS publishes and registers a worker over NATS, as a process with an epoch.
func (w *worker) overNATS(url string, epoch uint64) *nats.Announcer {
	w.t.Helper()
	w.mu.Lock()
	w.card.Epoch, w.card.NATS, w.card.URL = epoch, &card.NATS{}, w.http.URL
	payload := w.card.Append(nil)
	w.mu.Unlock()
	at := nats.Config{URL: url, Worker: w.name, Retry: time.Millisecond}
	var err error
	w.pub, err = eventstest.NewPublisher(events.PublisherConfig{Epoch: epoch, Heartbeat: 20 * time.Millisecond}, nats.NewSender(at))
	if err != nil {
		w.t.Fatal(err)
	}
	a, err := nats.NewAnnouncer(nats.AnnouncerConfig{Config: at, Payload: payload, Epoch: epoch, Interval: 20 * time.Millisecond})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { a.Close() })
	return a
}

// TestTwins: of two workers with the same name the second is refused. Its events are not taken
// for the first one's, and the first stays when the second goes, whichever process started
// earlier.
func TestTwins(t *testing.T) {
	for _, epochs := range [][2]uint64{{5, 6}, {6, 5}} {
		at := natsServer(t, "127.0.0.1:0").URL()
		s := newStand(t, Config{NATS: &nats.Config{URL: at, Retry: time.Millisecond}})
		first, second := newWorker(t, "w", false, nil), newWorker(t, "w", false, nil)
		first.overNATS(at, epochs[0])
		s.ready(1)
		first.holds(run(0, 40))
		held := func() int {
			if st := s.at(first); len(st.Ranks) == 1 {
				return st.Ranks[0].HeldBlocks
			}
			return -1
		}
		s.until("the first one's events", func() bool { return held() == 10 })
		goodbye := second.overNATS(at, epochs[1])
		s.until("the second one is refused", func() bool { return s.at(second).State == "refused" })
		second.holds(run(5000, 400))
		before := s.members.EventCounts()
		for i := range 5 { // including events of the second worker
			first.holds(run(40+4*i, 4))
			second.holds(run(9000+4*i, 4))
		}
		s.until("more of the first one's events", func() bool { return held() == 15 })
		if epochs[1] > epochs[0] {
			s.until("the second one is noticed", func() bool {
				st, _ := s.members.Events(kv.Rank{Worker: kv.WorkerID(card.IDOf("w"))})
				return st.Successor == epochs[1]
			})
		}
		goodbye.Close()
		s.until("the second one has gone", func() bool { return s.at(second).URL == "" })
		if st := s.at(first); st.State != "healthy" || held() != 15 {
			t.Errorf("epochs %v: the first one is %+v", epochs, st)
		}
		if after := s.members.EventCounts(); after.Clears != before.Clears || after.Restarts != before.Restarts {
			t.Errorf("epochs %v: before %v, after %v", epochs, before, after)
		}
	}
}

// TestRestartOverNATS: a worker restarted with its name and address is recognized as a new
// process, even without a goodbye of the old one.
func TestRestartOverNATS(t *testing.T) {
	at := natsServer(t, "127.0.0.1:0").URL()
	s := newStand(t, Config{NATS: &nats.Config{URL: at, Retry: time.Millisecond}})
	w := newWorker(t, "w", false, nil)
	w.overNATS(at, 5)
	s.ready(1)
	w.holds(run(0, 40))
	held := func() int {
		if st := s.at(w); len(st.Ranks) == 1 {
			return st.Ranks[0].HeldBlocks
		}
		return -1
	}
	s.until("its events", func() bool { return held() == 10 })
	w.pub.Close()
	w.overNATS(at, 6)
	w.holds(run(7000, 20))
	s.until("those of the new one", func() bool { return held() == 5 && s.at(w).State == "healthy" })
}
