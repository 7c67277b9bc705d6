package ptxvm_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
)

func first(data []byte) uint32 { return binary.LittleEndian.Uint32(data[4:]) }

// TestLate checks that nothing runs before the host waits for it, so that a test sees a program that
// reads a result or changes a source too early.
func TestLate(t *testing.T) {
	b := newBench(t, ptxvm.Config{})
	from, to, out := b.words(64), b.room(64), make([]byte, 256)
	source := bytes.Repeat([]byte{7}, 256)
	if err := b.m.CopyIn(b.s, from, source); err != nil {
		t.Fatal(err)
	}
	b.queue(b.s, "copy_words", 1, 64, to, from, int32(1))
	if err := b.m.CopyOut(b.s, out, to); err != nil {
		t.Fatal(err)
	}
	if first(out) != 0 || b.m.Stats("copy_words").Launches != 0 {
		t.Error("something ran before the host waited")
	}
	source[4] = 9 // too early: the copy reads it later
	if err := b.m.SyncStream(b.s); err != nil {
		t.Fatal(err)
	}
	if first(out) != 0x07070709 || b.m.Stats("copy_words").Launches != 1 {
		t.Errorf("after waiting: %#x", first(out))
	}
}

// TestStreamRaces checks that only events and waits of the host order two streams.
func TestStreamRaces(t *testing.T) {
	for _, c := range []struct {
		name  string
		order func(b *bench, one, two ptxvm.Stream)
		races bool
	}{
		{"nothing", func(*bench, ptxvm.Stream, ptxvm.Stream) {}, true},
		{"an event", func(b *bench, one, two ptxvm.Stream) {
			e := b.m.NewEvent()
			_ = b.m.Record(e, one)
			_ = b.m.Wait(two, e)
		}, false},
		{"an event recorded too early", func(b *bench, one, two ptxvm.Stream) {
			e := b.m.NewEvent()
			_ = b.m.Wait(two, e)
			_ = b.m.Record(e, one)
		}, true},
		{"the host waits", func(b *bench, one, _ ptxvm.Stream) { _ = b.m.SyncStream(one) }, false},
		{"the host waits for the other", func(b *bench, _, two ptxvm.Stream) { _ = b.m.SyncStream(two) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, ptxvm.Config{})
			x, y, z := b.words(64), b.room(64), b.room(64)
			if err := b.m.Sync(); err != nil {
				t.Fatal(err)
			}
			one, two := b.m.NewStream(), b.m.NewStream()
			b.queue(one, "copy_words", 1, 64, y, x, int32(1))
			c.order(b, one, two)
			b.queue(two, "copy_words", 1, 64, z, y, int32(1))
			err := b.m.SyncStream(one)
			if err == nil {
				err = b.m.SyncStream(two)
			}
			var f *ptxvm.Fault
			if races := errors.As(err, &f) && f.Kind == ptxvm.StreamRace; races != c.races || !races && err != nil {
				t.Errorf("%v, want a race: %v", err, c.races)
			}
		})
	}
}

// TestTwoReadersThenWriter checks that a writer must be ordered after all readers, not just after the
// last one.
func TestTwoReadersThenWriter(t *testing.T) {
	b := newBench(t, ptxvm.Config{})
	x, src := b.words(64), b.words(64)
	if err := b.m.Sync(); err != nil {
		t.Fatal(err)
	}
	one, two, three := b.m.NewStream(), b.m.NewStream(), b.m.NewStream()
	b.queue(one, "copy_words", 1, 64, b.room(64), x, int32(1))
	b.queue(two, "copy_words", 1, 64, b.room(64), x, int32(1))
	e := b.m.NewEvent()
	_ = b.m.Record(e, two)
	_ = b.m.Wait(three, e)
	b.queue(three, "copy_words", 1, 64, x, src, int32(1))
	var f *ptxvm.Fault
	if err := b.m.Sync(); !errors.As(err, &f) || f.Kind != ptxvm.StreamRace {
		t.Errorf("%v, want a race with the reader of the first stream", err)
	}
}

// TestMemory checks that all memory can be allocated, no more, and again after Free.
func TestMemory(t *testing.T) {
	m := ptxvm.New(ptxvm.Config{MemoryBytes: 1 << 10})
	p, err := m.Alloc(1 << 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Alloc(1); !errors.Is(err, ptxvm.ErrMemory) {
		t.Errorf("beyond the memory: %v", err)
	}
	if err := m.Free(p); err != nil {
		t.Fatal(err)
	}
	if err := m.Free(p); err == nil {
		t.Error("a second Free of the same memory succeeded")
	}
	if p, err = m.Alloc(1 << 10); err != nil || m.UsedBytes() != 1<<10 {
		t.Errorf("after freeing: %v, %d bytes", err, m.UsedBytes())
	}
	s := m.NewStream()
	_ = m.CopyOut(s, make([]byte, 4), p)
	var f *ptxvm.Fault
	if err := m.SyncStream(s); !errors.As(err, &f) || f.Kind != ptxvm.Uninitialised {
		t.Errorf("a copy of memory that was never written: %v", err)
	}
}
