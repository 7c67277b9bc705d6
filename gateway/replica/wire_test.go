package replica

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

func someMessage(rng *rand.Rand, kind wireKind) message {
	m := message{kind: kind, replica: router.ReplicaID(rng.Uint64() | 1), epoch: rng.Uint64(), blockTokens: 1 + rng.IntN(1<<16), seq: 1 + rng.Uint64()>>1>>rng.IntN(60)}
	switch kind {
	case wireAsk:
		m.addressee = router.ReplicaID(rng.Uint64() * uint64(rng.IntN(2)))
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
			ev.Worker = kv.Rank{Worker: kv.WorkerID(rng.Uint64()), DP: rng.Uint32() >> rng.IntN(32)}
			ev.PromptTokens, ev.UncachedTokens, ev.UnsharedBlocks = rng.IntN(1<<20), rng.IntN(1<<20), rng.IntN(100)
			ev.Untold = rng.IntN(2) == 0
			ev.Hashes = []kv.BlockHash{}
			for range rng.IntN(50) {
				ev.Hashes = append(ev.Hashes, kv.BlockHash(rng.Uint64()))
			}
		}
		if kind == wireEvents && ev.Kind != router.Progressed && rng.IntN(2) == 0 {
			ev.Session, ev.Stamp = 1+rng.Uint64()>>1, 1+rng.Uint64N(router.MaxStamp)
			if ev.Kind == router.Released {
				ev.Worker, ev.Nowhere = someWorker(rng)
			}
		}
		m.events = append(m.events, ev)
	}
	if kind == wireSnapshot {
		for range rng.IntN(5) {
			c := router.Claim{Session: 1 + rng.Uint64()>>1, Stamp: 1 + rng.Uint64N(router.MaxStamp), Replica: router.ReplicaID(rng.Uint64() | 1),
				Age: time.Duration(rng.Uint64N(mostAge+1)>>rng.IntN(42)) * time.Millisecond}
			c.Worker, c.Nowhere = someWorker(rng)
			m.claims = append(m.claims, c)
		}
	}
	return m
}

// someWorker returns a random worker, or none.
func someWorker(rng *rand.Rand) (w kv.Rank, nowhere bool) {
	if rng.IntN(3) == 0 {
		return w, true
	}
	return kv.Rank{Worker: kv.WorkerID(rng.Uint64()), DP: rng.Uint32() >> rng.IntN(32)}, false
}

// TestWire: decoding gives what was encoded, within the predicted size, and no prefix or
// extension of a message is valid.
func TestWire(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var d codec
	for i := range 2000 {
		m := someMessage(rng, wireKind(i%int(wireKinds)))
		b := appendMessage(nil, &m)
		most := messageHead
		for i := range m.events {
			most += eventBytes(&m.events[i])
		}
		most += len(m.claims) * claimBytes
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
		for _, bad := range [][]byte{b[:rng.IntN(len(b))], append(b[:len(b):len(b)], 0), append([]byte{3}, b[1:]...)} {
			if err := d.decode(bad, &got); !errors.Is(err, errWire) {
				t.Fatalf("%x of %x is read: %v", bad, b, err)
			}
		}
	}
}

// TestWireBytes: the bytes of version 2 are fixed, and version 1 is refused.
func TestWireBytes(t *testing.T) {
	m := message{kind: wireEvents, replica: 0x1122334455667788, epoch: 3, blockTokens: 16, seq: 300, events: []router.Event{
		{Kind: router.Reserved, ID: 7, Worker: kv.Rank{Worker: 0xabcdef, DP: 1}, PromptTokens: 200, UncachedTokens: 130, UnsharedBlocks: 1, Hashes: []kv.BlockHash{0x0102030405060708}},
		{Kind: router.Progressed, ID: 7, ComputedTokens: 130, OutputTokens: 2}, {Kind: router.Released, ID: 7},
	}}
	const head = "03" + "8877665544332211" + "0300000000000000" + "10" + "ac02" + "03"
	const old = "00070000" + "efcdab0000000000" + "01" + "c801" + "8201" + "01" + "01" + "0807060504030201" +
		"01078201" + "02" + "02070000"
	golden := func(want string) {
		t.Helper()
		if got := hex.EncodeToString(appendMessage(nil, &m)); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	golden("02" + head + old)
	made, undone := &m.events[0], &m.events[2]
	made.Session, made.Stamp, made.Untold = 0x5e55, 0x0102, true
	undone.Session, undone.Stamp, undone.Worker = 0x5e55, 0x0103, kv.Rank{Worker: 0xabcdef, DP: 1}
	const session, worker = "555e000000000000", "efcdab0000000000" + "01"
	golden("02" + head + "60070000" + session + "0201000000000000" + worker + "c801" + "8201" + "01" + "01" + "0807060504030201" +
		"01078201" + "02" + "42070000" + session + "0301000000000000" + worker)
	undone.Worker, undone.Nowhere = kv.Rank{}, true
	m = message{kind: wireSnapshot, replica: m.replica, epoch: 3, blockTokens: 16, seq: 300, lastID: 7, pieces: 1, claims: []router.Claim{
		{Session: 0x5e55, Stamp: 0x0102, Replica: 9, Worker: kv.Rank{Worker: 0xabcdef, DP: 1}, Age: 300 * time.Millisecond},
		{Session: 0x5e55, Stamp: 0x0103, Replica: 9, Nowhere: true},
	}}
	golden("0204" + head[2:len(head)-2] + "07" + "00" + "01" + "00" + "02" +
		"00" + session + "0201000000000000" + "0900000000000000" + "ac02" + worker +
		"10" + session + "0301000000000000" + "0900000000000000" + "00")
	first, err := hex.DecodeString("01" + head + old)
	if err != nil {
		t.Fatal(err)
	}
	if err := new(codec).decode(first, &m); !errors.Is(err, errVersion) {
		t.Errorf("version 1: %v", err)
	}
}

// TestWireRefusesClaims: claims that no router of ours sends are malformed.
func TestWireRefusesClaims(t *testing.T) {
	event := router.Event{Kind: router.Reserved, ID: 1, PromptTokens: 8, Session: 5, Stamp: 5}
	claim := router.Claim{Session: 5, Stamp: 5, Replica: 5}
	for name, m := range map[string]message{
		"no stamp":               {kind: wireEvents, events: []router.Event{{Kind: router.Reserved, ID: 1, PromptTokens: 8, Session: 5}}},
		"too high a stamp":       {kind: wireEvents, events: []router.Event{{Kind: router.Released, ID: 1, Session: 5, Stamp: router.MaxStamp + 1}}},
		"progress of a session":  {kind: wireEvents, events: []router.Event{{Kind: router.Progressed, ID: 1, Session: 5, Stamp: 5}}},
		"reserved nowhere":       {kind: wireEvents, events: []router.Event{{Kind: router.Reserved, ID: 1, Session: 5, Stamp: 5, Nowhere: true}}},
		"nowhere, no session":    {kind: wireEvents, events: []router.Event{{Kind: router.Released, ID: 1, Nowhere: true}}},
		"snapshot of an event's": {kind: wireSnapshot, pieces: 1, events: []router.Event{event}},
		"claim without session":  {kind: wireSnapshot, pieces: 1, claims: []router.Claim{claim, {Stamp: 5, Replica: 5}}},
		"claim without stamp":    {kind: wireSnapshot, pieces: 1, claims: []router.Claim{claim, {Session: 5, Replica: 5}}},
		"claim, no router":       {kind: wireSnapshot, pieces: 1, claims: []router.Claim{claim, {Session: 5, Stamp: 5}}},
		"claim of an age":        {kind: wireSnapshot, pieces: 1, claims: []router.Claim{claim, {Session: 5, Stamp: 5, Replica: 5, Age: (mostAge + 1) * time.Millisecond}}},
	} {
		m.replica, m.epoch, m.blockTokens, m.seq = 1, 1, 4, 1
		var got message
		if err := new(codec).decode(appendMessage(nil, &m), &got); !errors.Is(err, errWire) {
			t.Errorf("%s is read: %v", name, err)
		}
	}
	m := message{kind: wireSnapshot, replica: 1, epoch: 1, blockTokens: 4, seq: 1, pieces: 1, claims: []router.Claim{claim}}
	whole := appendMessage(nil, &m)
	if err := new(codec).decode(whole, &m); err != nil || len(m.claims) != 1 {
		t.Fatalf("%v, %+v", err, m)
	}
	marked := bytes.Clone(whole)
	marked[len(marked)-leastClaim-9] = 1 // its mark, before 3 numbers of 8 bytes, an age and a worker
	many := bytes.Clone(whole)
	many[len(many)-leastClaim-10] = 100 // the count of claims
	for name, b := range map[string][]byte{"an unknown mark": marked, "more claims than bytes": many} {
		if err := new(codec).decode(b, &m); !errors.Is(err, errWire) {
			t.Errorf("%s is read: %v", name, err)
		}
	}
}

func TestShorten(t *testing.T) {
	ev := router.Event{Kind: router.Reserved, UnsharedBlocks: 3, Hashes: make([]kv.BlockHash, 10)}
	shorten(&ev, 10)
	if len(ev.Hashes) != 10 || ev.UnsharedBlocks != 3 {
		t.Errorf("%+v", ev)
	}
	shorten(&ev, 4)
	if len(ev.Hashes) != 4 || cap(ev.Hashes) != 4 || ev.UnsharedBlocks != 9 {
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

// FuzzWire: any input is refused, or encodes to the same bytes again.
func FuzzWire(f *testing.F) {
	rng := rand.New(rand.NewPCG(2, 1))
	for i := range 20 {
		m := someMessage(rng, wireKind(i%int(wireKinds)))
		f.Add(appendMessage(nil, &m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var d codec
		var m message
		if d.decode(b, &m) != nil {
			return
		}
		if again := appendMessage(nil, &m); !bytes.Equal(again, b) {
			t.Fatalf("%x was read, %x is written", b, again)
		}
		if cap(d.hashes)*hashBytes > 2*len(b)+1024 || len(d.events) > batchEvents || len(d.claims)*leastClaim > len(b) {
			t.Fatalf("%d bytes made %d events, %d claims and room for %d hashes", len(b), len(d.events), len(d.claims), cap(d.hashes))
		}
		// The router accepts or refuses it.
		r, err := router.New(router.Config{BlockTokens: 4, Replica: 1, Epoch: 1, MaxActive: 8, SessionTTL: time.Second, MaxSessions: 4})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Join(0, kv.Rank{}, router.WorkerSpec{BlockTokens: 4}); err != nil {
			t.Fatal(err)
		}
		for i := range m.events {
			r.Apply(0, &m.events[i])
		}
		r.ApplySnapshot(0, &router.Snapshot{Replica: m.replica, Epoch: m.epoch, Seq: m.seq, LastID: m.lastID, Events: m.events}, nil)
		r.ApplyClaims(0, m.claims)
		if err := r.Check(); err != nil {
			t.Fatal(err)
		}
	})
}
