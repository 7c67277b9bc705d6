package events

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// outlasting returns a source with a publisher of epoch 9 that has two blocks after batch 4, a sink that
// follows it under Outlast, and the changes of its state. The rank is Live.
func outlasting(t *testing.T, cfg SubscriberConfig, outlast time.Duration) (*pipe, *naive, *Subscriber, <-chan State) {
	t.Helper()
	p, sink, changes := newPipe(), newNaive(), make(chan State, 100)
	p.snapshot = func() (Snapshot, error) {
		return Snapshot{Epoch: 9, Next: 5, Batches: [][]byte{payload(root(1, 2))}}, nil
	}
	cfg.RetryMin, cfg.RetryMax = time.Microsecond, time.Microsecond
	cfg.OnChange = func(_ kv.Rank, s State, _ error) { changes <- s }
	sub := add(t, cfg, sink, p, Follow{Outlast: outlast})
	p.frames <- Frame{Kind: FrameConnected}
	if s := <-changes; s != Live {
		t.Fatal(s)
	}
	return p, sink, sub, changes
}

// TestOutlast: contents outlast a broken connection, and a publisher that can't be asked after the
// connection is back, until a replay has brought what was missed.
func TestOutlast(t *testing.T) {
	p, sink, sub, changes := outlasting(t, SubscriberConfig{Grace: -1}, time.Hour)
	p.frames <- Frame{Kind: FrameDisconnected}
	if s := <-changes; s != Outdated || len(sink.held(rank1)) != 2 {
		t.Fatalf("%v, %d blocks", s, len(sink.held(rank1)))
	}
	away, asked := fmt.Errorf("the worker has not reconnected: %w", ErrUnreachable), make(chan struct{})
	answers := 0
	p.replay = func(uint64) (uint64, []Message, error) {
		if answers++; answers < 4 {
			return 0, nil, away
		}
		if answers == 4 {
			close(asked)
		}
		return 9, []Message{{Epoch: 9, Seq: 4, Payload: payload()}, {Epoch: 9, Seq: 5, Payload: payload(root(3))}}, nil
	}
	p.snapshot = func() (Snapshot, error) { return Snapshot{}, away }
	p.frames <- Frame{Kind: FrameConnected}
	<-asked
	if s := <-changes; s != Live || len(sink.held(rank1)) != 3 {
		t.Errorf("%v, %d blocks", s, len(sink.held(rank1)))
	}
	p.settle()
	if st := status(t, sub); st.Next != 6 || st.Counts.Clears != 0 || st.Counts.FailedRecoveries != 3 {
		t.Errorf("%+v", st)
	}
}

// TestOutlastSilence: contents outlast silence. The next batch in order shows that nothing was missed.
func TestOutlastSilence(t *testing.T) {
	p, sink, sub, changes := outlasting(t, SubscriberConfig{Silence: time.Millisecond}, time.Hour)
	if s := <-changes; s != Outdated || len(sink.held(rank1)) != 2 {
		t.Fatalf("%v, %d blocks", s, len(sink.held(rank1)))
	}
	p.send(Message{Epoch: 9, Seq: 5, Payload: payload(root(3))})
	if s := <-changes; s != Live || len(sink.held(rank1)) != 3 {
		t.Errorf("%v, %d blocks", s, len(sink.held(rank1)))
	}
	if n := status(t, sub).Counts.Clears; n != 0 {
		t.Errorf("cleared %d times", n)
	}
}

// TestOutlastEnds: contents do not outlast a publisher of a later epoch, an answer that shows another
// publisher, a publisher that answers with an error, nor the time that is set.
func TestOutlastEnds(t *testing.T) {
	away := func() (Snapshot, error) { return Snapshot{}, ErrUnreachable }
	for name, tc := range map[string]struct {
		outlast time.Duration
		then    func(p *pipe)
		want    State
	}{
		"epoch": {time.Hour, func(p *pipe) {
			p.snapshot = away
			p.send(Message{Epoch: 10, Seq: 0, Payload: payload()})
		}, Lost},
		"replay": {time.Hour, func(p *pipe) {
			p.snapshot = away
			p.replay = func(uint64) (uint64, []Message, error) {
				return 10, []Message{{Epoch: 10, Seq: 4, Payload: payload()}}, nil
			}
			p.frames <- Frame{Kind: FrameConnected}
		}, Lost},
		"error": {time.Hour, func(p *pipe) {
			p.snapshot = func() (Snapshot, error) { return Snapshot{}, errors.New("the node has failed") }
			p.frames <- Frame{Kind: FrameConnected}
		}, Lost},
		"time": {time.Millisecond, func(*pipe) {}, Waiting},
	} {
		t.Run(name, func(t *testing.T) {
			p, sink, sub, changes := outlasting(t, SubscriberConfig{Grace: -1}, tc.outlast)
			p.frames <- Frame{Kind: FrameDisconnected}
			if s := <-changes; s != Outdated {
				t.Fatal(s)
			}
			tc.then(p)
			if s := <-changes; s != tc.want || len(sink.held(rank1)) != 0 {
				t.Errorf("%v, %d blocks", s, len(sink.held(rank1)))
			}
			if n := sub.Counts().Clears; n == 0 {
				t.Error("not cleared")
			}
		})
	}
}
