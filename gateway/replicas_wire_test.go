package gateway

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

func someMessage(rng *rand.Rand, kind wireKind) message {
	m := message{kind: kind, replica: router.ReplicaID(rng.Uint64() | 1), epoch: rng.Uint64(), blockTokens: 1 + rng.IntN(1<<16), seq: 1 + rng.Uint64()>>1>>rng.IntN(60)}
	switch kind {
	case wireAsk:
		m.whom = router.ReplicaID(rng.Uint64() * uint64(rng.IntN(2)))
	case wireSnapshot:
		m.lastID, m.pieces = rng.Uint64(), 1+rng.IntN(maxPieces)
		m.piece = rng.IntN(m.pieces)
	}
	if kind != wireEvents && kind != wireSnapshot {
		return m
	}
	for i := range 1 + rng.IntN(5) {
		ev := router.Event{Replica: m.replica, Epoch: m.epoch, Kind: router.EventKind(rng.IntN(3)), ID: rng.Uint64() >> rng.IntN(64),
			ComputedTokens: rng.IntN(router.MaxPromptTokens + 1), OutputTokens: rng.IntN(300)}
		if kind == wireSnapshot {
			ev.Kind = router.Reserved
		} else {
			ev.Seq = m.seq + uint64(i)
		}
		if ev.Kind == router.Reserved {
			ev.Worker = router.Worker{ID: router.WorkerID(rng.Uint64()), Rank: rng.Uint32() >> rng.IntN(32)}
			ev.PromptTokens, ev.UncachedTokens, ev.UnsharedBlocks = rng.IntN(1<<20), rng.IntN(1<<20), rng.IntN(100)
			ev.DecodeOnly = rng.IntN(2) == 0
			ev.Hashes = []kv.BlockHash{}
			for range rng.IntN(50) {
				ev.Hashes = append(ev.Hashes, kv.BlockHash(rng.Uint64()))
			}
		}
		m.events = append(m.events, ev)
	}
	return m
}

// TestWire: what is written is read again, within the bytes that were said to be enough,
// and no shorter or longer.
func TestWire(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var d decoder
	for i := range 2000 {
		m := someMessage(rng, wireKind(i%int(wireKinds)))
		b := appendMessage(nil, &m)
		most := messageHead
		for i := range m.events {
			most += eventBytes(&m.events[i])
		}
		if len(b) > most {
			t.Fatalf("%d bytes, at most %d were said", len(b), most)
		}
		var got message
		if err := d.decode(b, &got); err != nil {
			t.Fatalf("%+v: %v", m, err)
		}
		if !reflect.DeepEqual(got, m) {
			t.Fatalf("got %+v, want %+v", got, m)
		}
		for _, bad := range [][]byte{b[:rng.IntN(len(b))], append(b[:len(b):len(b)], 0), append([]byte{2}, b[1:]...)} {
			if err := d.decode(bad, &got); !errors.Is(err, errWire) {
				t.Fatalf("%x of %x is read: %v", bad, b, err)
			}
		}
	}
}

// TestWireBytes: version 1 is what it was.
func TestWireBytes(t *testing.T) {
	m := message{kind: wireEvents, replica: 0x1122334455667788, epoch: 3, blockTokens: 16, seq: 300, events: []router.Event{
		{Kind: router.Reserved, ID: 7, Worker: router.Worker{ID: 0xabcdef, Rank: 1}, PromptTokens: 200, UncachedTokens: 130, UnsharedBlocks: 1, DecodeOnly: true, Hashes: []kv.BlockHash{0x0102030405060708}},
		{Kind: router.Progressed, ID: 7, ComputedTokens: 130, OutputTokens: 2}, {Kind: router.Released, ID: 7},
	}}
	const want = "0103" + "8877665544332211" + "0300000000000000" + "10" + "ac02" + "03" +
		"80070000" + "efcdab0000000000" + "01" + "c801" + "8201" + "01" + "01" + "0807060504030201" +
		"01078201" + "02" + "02070000"
	if got := hex.EncodeToString(appendMessage(nil, &m)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestShorten(t *testing.T) {
	ev := router.Event{Kind: router.Reserved, UnsharedBlocks: 3, Hashes: make([]kv.BlockHash, 10)}
	shorten(&ev, 10)
	if len(ev.Hashes) != 10 || ev.UnsharedBlocks != 3 {
		t.Errorf("%+v", ev)
	}
	shorten(&ev, 4)
	if len(ev.Hashes) != 4 || ev.UnsharedBlocks != 9 {
		t.Errorf("%+v", ev)
	}
	events := make([]router.Event, 1000) // empty reservations
	if n := fitting(events, batchBytes); n != batchEvents {
		t.Errorf("%d events fit", n)
	}
	events[1].Hashes = make([]kv.BlockHash, eventHashes)
	for i, want := range []int{1, 1, batchEvents} {
		if n := fitting(events[i:], batchBytes); n != want {
			t.Errorf("from %d on: %d events fit, want %d", i, n, want)
		}
	}
}

// FuzzWire: whatever comes is refused, or is what would be written again.
func FuzzWire(f *testing.F) {
	rng := rand.New(rand.NewPCG(2, 1))
	for i := range 20 {
		m := someMessage(rng, wireKind(i%int(wireKinds)))
		f.Add(appendMessage(nil, &m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var d decoder
		var m message
		if d.decode(b, &m) != nil {
			return
		}
		if again := appendMessage(nil, &m); !bytes.Equal(again, b) {
			t.Fatalf("%x was read, %x is written", b, again)
		}
		if cap(d.hashes)*hashBytes > 2*len(b)+1024 || len(d.events) > batchEvents {
			t.Fatalf("%d bytes made %d events and room for %d hashes", len(b), len(d.events), cap(d.hashes))
		}
		// The router takes it or refuses it.
		r, err := router.New(router.Config{BlockTokens: 4, Replica: 1, Epoch: 1, MaxActive: 8})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Join(0, router.Worker{}, router.WorkerSpec{BlockTokens: 4}); err != nil {
			t.Fatal(err)
		}
		for i := range m.events {
			r.Apply(0, &m.events[i])
		}
		r.ApplySnapshot(0, &router.Snapshot{Replica: m.replica, Epoch: m.epoch, Seq: m.seq, LastID: m.lastID, Events: m.events})
		if err := r.Check(); err != nil {
			t.Fatal(err)
		}
	})
}
