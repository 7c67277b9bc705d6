package eventlog

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// open returns an empty log.
func open(t *testing.T, cfg Config) *Log {
	t.Helper()
	l, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestRefusesConfig checks that New refuses sizes that no log can have, and says which it can: a batch
// of less than one event would never end.
func TestRefusesConfig(t *testing.T) {
	_, err := New(Config{KeepEvents: -1, KeepBytes: -1, BatchEvents: -1, BatchBlocks: -1}, nil)
	const want = `eventlog: KeepEvents is -1, want 1 to 1073741824
eventlog: KeepBytes is -1, want 1 to 1099511627776
eventlog: BatchEvents is -1, want 1 to 16384
eventlog: BatchBlocks is -1, want 0 to 262144`
	if err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
}

// stored returns a Stored event of one block for each number.
func stored(numbers ...kv.Token) kv.Event {
	ev := kv.Event{Kind: kv.Stored}
	hasher := kv.NewHasher(kv.Namespace{}, 4)
	for _, n := range numbers {
		tokens := slices.Repeat([]kv.Token{n}, 4)
		hash, local := hasher.Next(tokens)
		ev.Blocks = append(ev.Blocks, kv.Block{Hash: hash, Local: local, Tokens: tokens})
	}
	return ev
}

// numbers returns the numbers of the kept batches from a number on.
func numbers(t *testing.T, l *Log, from uint64) (seqs []uint64) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for {
		batches, err := l.Read(ctx, from)
		if errors.Is(err, context.Canceled) {
			return seqs
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range batches {
			for _, ev := range b.Events {
				if ev.Seq != b.Seq {
					t.Errorf("an event of batch %d has number %d", b.Seq, ev.Seq)
				}
			}
			seqs = append(seqs, b.Seq)
			from = b.Seq + 1
		}
	}
}

func TestLogKeepsTheLast(t *testing.T) {
	l := open(t, Config{KeepEvents: 10})
	for n := range kv.Token(7) {
		l.Append([]kv.Event{stored(2 * n), stored(2*n + 1)})
	}
	if got := numbers(t, l, 2); !slices.Equal(got, []uint64{2, 3, 4, 5, 6}) {
		t.Errorf("kept are %v", got)
	}
	for _, from := range []uint64{0, 1, 8} {
		if _, err := l.Read(context.Background(), from); !errors.Is(err, ErrLagged) {
			t.Errorf("from %d: %v", from, err)
		}
	}
	if !l.Beat(7) || l.Beat(7) {
		t.Error("a heartbeat has the next number, or none")
	}
	if got := numbers(t, l, 3); !slices.Equal(got, []uint64{3, 4, 5, 6, 7}) {
		t.Errorf("kept are %v", got)
	}
	l.Append(slices.Repeat([]kv.Event{{Kind: kv.Removed}}, 100)) // more than it keeps: the newest stays
	if first, next := l.Kept(); first != 8 || next != 9 {
		t.Errorf("kept are [%d, %d)", first, next)
	}
	small := open(t, Config{KeepBytes: 1000})
	for range 9 {
		small.Append([]kv.Event{stored(1)})
	}
	if first, _ := small.Kept(); first != 6 || small.bytes > 1000 {
		t.Errorf("from %d on %d bytes are kept", first, small.bytes)
	}
}

// TestLogEnds: a batch or the end of the log wakes a waiting reader.
func TestLogEnds(t *testing.T) {
	l := open(t, Config{})
	read := make(chan error)
	go func() {
		_, err := l.Read(context.Background(), 0)
		read <- err
		_, err = l.Read(context.Background(), 1)
		read <- err
		_, err = l.Read(context.Background(), 2)
		read <- err
	}()
	l.Append([]kv.Event{stored(1)})
	if err := <-read; err != nil {
		t.Error(err)
	}
	gone := errors.New("gone")
	l.Close(gone)
	if err := <-read; err != nil { // all that it held is gone
		t.Error(err)
	}
	if err := <-read; err != gone {
		t.Error(err)
	}
	l.Append([]kv.Event{stored(1)})
	if _, next := l.Kept(); next != 2 {
		t.Error("it goes on after its end")
	}
}
