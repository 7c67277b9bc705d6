package events

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/coppice-llm/coppice/events/eventlog"
	"github.com/coppice-llm/coppice/events/wire"
	"github.com/coppice-llm/coppice/kv"
)

// via encodes events as the publisher does, and translates them back.
func via(t *testing.T, evs ...kv.Event) *naive {
	t.Helper()
	tap, sink := newTap(), newNaive()
	p := mustPublisher(t, PublisherConfig{}, eventlog.Config{}, nil, tap)
	p.publish(evs...)
	p.Close()
	held := make(map[tierHash]kv.LocalHash)
	residency(t, held, payloads(tap.sent)...)
	sink.ranks[rank1] = held
	return sink
}

// TestNamespacesGetAcross: adapter, salt (on all blocks of a sequence) and media, which
// distinguish blocks with equal tokens, survive the wire.
func TestNamespacesGetAcross(t *testing.T) {
	for _, ns := range []kv.Namespace{{}, {LoRA: "sql"}, {Salt: "tenant"}, {LoRA: "sql", Salt: "tenant"}, {Salt: "sql", LoRA: "sqlite"}} {
		for _, media := range [][]uint64{nil, {5}, {0, 1 << 63}} {
			ev := kv.Event{Kind: kv.Stored, Namespace: ns}
			hasher := kv.NewHasher(ns, testBlock)
			for i := range 6 {
				b := kv.Block{Tokens: []kv.Token{kv.Token(i), 1, 2, 3}}
				if i%4 == 0 {
					b.Media = media
				}
				b.Hash, b.Local = hasher.NextMedia(b.Tokens, b.Media)
				ev.Blocks = append(ev.Blocks, b)
			}
			// The rest of the sequence is an event of its own, as after a split.
			rest := ev
			rest.Blocks, rest.Parent, rest.HasParent = ev.Blocks[3:], ev.Blocks[2].Hash, true
			first := ev
			first.Blocks = ev.Blocks[:3]
			held := via(t, first, rest).held(rank1)
			for i, b := range ev.Blocks {
				if held[tierHash{hash: b.Hash}] != b.Local {
					t.Errorf("%+v, media %v: block %d has another content", ns, media, i)
				}
			}
		}
	}
}

// TestPrivateAfterPublicGetsAcross: private blocks after a public prefix keep their salt,
// also in an event of their own, on another tier, and with media; public ones have none.
func TestPrivateAfterPublicGetsAcross(t *testing.T) {
	for _, ns := range []kv.Namespace{{Salt: "tenant"}, {LoRA: "sql", Salt: "sql"}} {
		for _, media := range [][]uint64{nil, {5, 6}} {
			public := kv.NewHasher(kv.Namespace{LoRA: ns.LoRA}, testBlock)
			var blocks []kv.Block
			for i := range 6 {
				b := kv.Block{Tokens: []kv.Token{kv.Token(i), 1, 2, 3}}
				if i == 3 {
					b.Media = media
				}
				if i < 3 {
					b.Hash, b.Local = public.Next(b.Tokens)
				} else {
					b.Local = kv.HashLocal(b.Tokens, ns.Seed())
					if b.Media != nil {
						b.Local, _ = kv.HashLocalMedia(b.Tokens, b.Media, ns.Seed(), nil)
					}
					b.Hash = kv.Chain(blocks[i-1].Hash, b.Local)
				}
				blocks = append(blocks, b)
			}
			stored := func(ns kv.Namespace, tier kv.Tier, from, to int) kv.Event {
				ev := kv.Event{Kind: kv.Stored, Namespace: ns, Tier: tier, Blocks: blocks[from:to]}
				if from > 0 {
					ev.Parent, ev.HasParent, ev.PublicParent = blocks[from-1].Hash, true, from == 3
				}
				return ev
			}
			held := via(t, stored(kv.Namespace{LoRA: ns.LoRA}, kv.TierDevice, 0, 3), stored(ns, kv.TierDevice, 3, 5), stored(ns, kv.TierDevice, 5, 6),
				stored(ns, kv.TierHost, 3, 4)).held(rank1)
			for i, b := range blocks {
				if held[tierHash{hash: b.Hash}] != b.Local {
					t.Errorf("%+v, media %v: block %d has another content", ns, media, i)
				}
			}
			if b := blocks[3]; held[tierHash{kv.TierHost, b.Hash}] != b.Local {
				t.Errorf("%+v, media %v: block 3 has another content in host memory", ns, media)
			}
		}
	}
}

func extra(t *testing.T, v ...any) []byte {
	b, err := msgpack.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestForeignExtraKeys: known extra keys of vLLM are used. A block with an unknown key is
// not taken for a plain one.
func TestForeignExtraKeys(t *testing.T) {
	hex64 := fmt.Sprintf("%016x%048x", uint64(7), 1)
	ours := fmt.Sprintf("%016x%048x", uint64(7), 0)
	plain := kv.HashLocal([]kv.Token{1, 2, 3, 4}, kv.Namespace{}.Seed())
	digits := kv.HashLocal([]kv.Token{1, 2, 3, 4}, kv.Namespace{Salt: hex64}.Seed())
	salted := kv.HashLocal([]kv.Token{1, 2, 3, 4}, kv.Namespace{Salt: "tenant"}.Seed())
	lora := kv.HashLocal([]kv.Token{1, 2, 3, 4}, kv.Namespace{LoRA: "sql"}.Seed())
	image, _ := kv.HashLocalMedia([]kv.Token{1, 2, 3, 4}, []uint64{7}, kv.Namespace{}.Seed(), nil)
	for name, c := range map[string]struct {
		lora  string
		extra []byte
		want  kv.LocalHash // 0: neither of the known ones
	}{
		"none":                  {"", nil, plain},
		"nil for the block":     {"", extra(t, nil), plain},
		"salt":                  {"", extra(t, []any{"tenant"}), salted},
		"adapter":               {"sql", nil, lora},
		"adapter told twice":    {"sql", extra(t, []any{"sql"}), lora},
		"image, as we write it": {"", extra(t, []any{ours}), image},
		"image and its offset":  {"", extra(t, []any{[]any{hex64, 3}}), image},
		"image twice":           {"", extra(t, []any{[]any{hex64, 3}, []any{hex64, 9}}), image},
		"salt of 64 digits":     {"", extra(t, []any{hex64}), digits},
		"image of another sort": {"", extra(t, []any{[]any{"uuid", 3}}), 0},
		"embeddings":            {"", extra(t, []any{[]byte{1, 2}}), 0},
		"number":                {"", extra(t, []any{3}), 0},
		"salt and embeddings":   {"", extra(t, []any{"tenant", []byte{1}}), 0},
	} {
		e := wire.Event{Kind: wire.BlockStored, BlockTokens: testBlock, Hashes: []uint64{1}, Tokens: []uint32{1, 2, 3, 4}, Extra: c.extra}
		if c.lora != "" {
			e.LoRA = []byte(c.lora)
		}
		s, why, err := newTranslator(testBlock, 10).stored(&e)
		if err != nil || why != notSkipped || len(s.Blocks) != 1 {
			t.Fatalf("%s: %v, %v", name, why, err)
		}
		got := s.Blocks[0].Local
		known := got == plain || got == salted || got == lora || got == image
		if c.want != 0 && got != c.want || c.want == 0 && known {
			t.Errorf("%s: %x", name, got)
		}
	}
}

func TestGroupsAndMedia(t *testing.T) {
	tr := newTranslator(testBlock, 10)
	event := func(group int32, kind string, medium string) wire.Event {
		e := root(9)
		e.Group, e.HasGroup = group, group >= 0
		if kind != "" {
			e.SpecKind = []byte(kind)
		}
		if medium != "" {
			e.Medium = []byte(medium)
		}
		return e
	}
	at := func(medium, locality string) wire.Event {
		e := event(-1, "", medium)
		e.Locality = []byte(locality)
		return e
	}
	for i, c := range []struct {
		e    wire.Event
		want skipReason
		tier kv.Tier
	}{
		{event(-1, "", ""), notSkipped, kv.TierDevice},
		{event(-1, "", "gpu"), notSkipped, kv.TierDevice},
		{event(-1, "", "CPU"), notSkipped, kv.TierHost},
		{event(-1, "", "disk"), notSkipped, kv.TierDisk},
		{event(-1, "", "shared"), notSkipped, kv.TierShared},
		{event(-1, "", "OBJECT"), notSkipped, kv.TierObject},
		{event(-1, "", "CPU_PINNED"), notSkipped, kv.TierHost}, // SGLang's name, and once ours
		{event(-1, "", "EXTERNAL"), notSkipped, kv.TierShared},
		{event(-1, "", "STORAGE"), notSkipped, kv.TierDisk},
		{at("STORAGE", "LOCAL"), notSkipped, kv.TierDisk},
		{at("STORAGE", "REMOTE"), notSkipped, kv.TierShared},
		{at("CPU", "REMOTE"), notSkipped, kv.TierHost},
		{event(-1, "", "SHARED_STORAGE"), notSkipped, kv.TierShared},
		{event(-1, "", "OBJECT_STORAGE"), notSkipped, kv.TierObject},
		{event(-1, "", "moon"), unknownMedium, 0},
		{event(1, "sliding_window", ""), otherGroup, 0},
		{event(2, "full_attention", ""), notSkipped, kv.TierDevice},
		{event(0, "full_attention", ""), otherGroup, 0},
		{event(2, "", "CPU"), notSkipped, kv.TierHost},
	} {
		s, why, err := tr.stored(&c.e)
		if err != nil || why != c.want || s.Tier != c.tier {
			t.Errorf("%d: %v, %v, %v", i, s.Tier, why, err)
		}
		c.e.Kind = wire.BlockRemoved
		if tier, hashes, why := tr.removed(&c.e); c.want == notSkipped && (why != notSkipped || tier != c.tier || len(hashes) != 1) {
			t.Errorf("%d, removed: %v, %v", i, tier, why)
		}
	}
}

// TestSaltsAreBounded: a salt is kept as long as its block is held, within the limit.
func TestSaltsAreBounded(t *testing.T) {
	tr := newTranslator(testBlock, 3)
	salted := func(hashes ...uint64) wire.Event {
		e := root(hashes...)
		keys := make([]any, len(hashes))
		keys[0] = []any{"tenant"}
		e.Extra = extra(t, keys...)
		return e
	}
	e := salted(1, 2, 3)
	if _, why, _ := tr.stored(&e); why != notSkipped || len(tr.salts) != 3 {
		t.Fatalf("%v, %d salts", why, len(tr.salts))
	}
	more := salted(4)
	if _, why, _ := tr.stored(&more); why != saltLimit {
		t.Errorf("%v beyond the limit", why)
	}
	gone := wire.Event{Kind: wire.BlockRemoved, Hashes: []uint64{3}}
	tr.removed(&gone)
	if _, why, _ := tr.stored(&more); why != notSkipped || len(tr.salts) != 3 {
		t.Errorf("%v, %d salts", why, len(tr.salts))
	}
}

// locals returns the contents of a sequence's blocks of 4 tokens in a namespace.
func locals(ns kv.Namespace, tokens ...uint32) (all []kv.LocalHash) {
	for block := range slices.Chunk(tokens, testBlock) {
		var of []kv.Token
		for _, token := range block {
			of = append(of, kv.Token(token))
		}
		all = append(all, kv.HashLocal(of, ns.Seed()))
	}
	return all
}

func contents(s Stored) (all []kv.LocalHash) {
	for _, b := range s.Blocks {
		all = append(all, b.Local)
	}
	return all
}

// TestSaltOfEachEvent: SGLang names the salt in every event of a salted request, and the blocks are of that namespace.
func TestSaltOfEachEvent(t *testing.T) {
	tr := newTranslator(testBlock, 10)
	tokens := []uint32{1, 2, 3, 4, 5, 6, 7, 8}
	e := root(1, 2)
	e.Tokens, e.Salt = tokens, []byte("tenant")
	child := e
	child.Hashes, child.Tokens, child.Parent, child.HasParent = []uint64{3}, tokens[:4], 9, true // its parent's salt is unknown here
	for _, c := range []struct {
		e    wire.Event
		want []kv.LocalHash
	}{{e, locals(kv.Namespace{Salt: "tenant"}, tokens...)}, {child, locals(kv.Namespace{Salt: "tenant"}, tokens[:4]...)}} {
		if s, why, err := tr.stored(&c.e); err != nil || why != notSkipped || !slices.Equal(contents(s), c.want) {
			t.Errorf("%v %v: %x, want %x", why, err, contents(s), c.want)
		}
	}
	e.Salt = []byte(strings.Repeat("x", maxSalt+1))
	if _, why, _ := tr.stored(&e); why != saltLimit {
		t.Errorf("a long salt: %v", why)
	}
	e.Salt = []byte{}
	if s, _, _ := tr.stored(&e); !slices.Equal(contents(s), locals(kv.Namespace{Salt: "tenant"}, tokens...)) {
		t.Error("an empty salt is none, but the block was stored under one before")
	}
}

// TestCopiesKeepTheirSalt: vLLM's offloading connector reports a copy without extra keys. It is no public block, also
// if the block has left the device meanwhile.
func TestCopiesKeepTheirSalt(t *testing.T) {
	tr := newTranslator(testBlock, 10)
	e := root(1)
	e.Extra = extra(t, []any{"tenant"})
	_, _, _ = tr.stored(&e)
	want := locals(kv.Namespace{Salt: "tenant"}, e.Tokens...)
	below := e
	below.Extra, below.Medium = nil, []byte("CPU")
	gone := wire.Event{Kind: wire.BlockRemoved, Hashes: []uint64{1}}
	for _, removed := range []bool{false, true} {
		if removed {
			tr.removed(&gone)
			gone.Medium = []byte("CPU")
			tr.removed(&gone)
		}
		if s, why, _ := tr.stored(&below); why != notSkipped || !slices.Equal(contents(s), want) {
			t.Errorf("removed %v: %v, %x, want %x", removed, why, contents(s), want)
		}
	}
	public := below
	public.Hashes = []uint64{2}
	if s, _, _ := tr.stored(&public); !slices.Equal(contents(s), locals(kv.Namespace{}, e.Tokens...)) {
		t.Error("another block has the salt too")
	}
	for n := range uint64(2 * maxLeft) {
		tr.left.add(kv.BlockHash(n), "tenant")
	}
	if len(tr.left.salts) > maxLeft || len(tr.left.order) > maxLeft {
		t.Errorf("%d salts of blocks that have left", len(tr.left.salts))
	}
}

// TestLongBlocks: a worker's block may be several blocks of the index, which come and go together.
func TestLongBlocks(t *testing.T) {
	tr := newTranslator(testBlock, 10)
	tokens := make([]uint32, 6*testBlock)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	e := wire.Event{Kind: wire.BlockStored, BlockTokens: 3 * testBlock, Hashes: []uint64{7, 8}, Tokens: tokens}
	s, why, err := tr.stored(&e)
	if err != nil || why != notSkipped || !slices.Equal(contents(s), locals(kv.Namespace{}, tokens...)) || s.Blocks[2].Hash != 7 || s.Blocks[5].Hash != 8 {
		t.Fatalf("%+v %v %v", s, why, err)
	}
	names := map[kv.BlockHash]bool{}
	for _, b := range s.Blocks {
		names[b.Hash] = true
	}
	gone := wire.Event{Kind: wire.BlockRemoved, Hashes: []uint64{7, 8}}
	_, hashes, _ := tr.removed(&gone)
	for _, h := range hashes {
		delete(names, h)
	}
	if len(hashes) != 6 || len(names) != 0 {
		t.Errorf("%d blocks removed, %d left", len(hashes), len(names))
	}
	e.BlockTokens = 2 * testBlock
	if e.Hashes = []uint64{1, 2, 3}; true {
		if _, why, err := tr.stored(&e); why != otherGroup || err != nil {
			t.Errorf("blocks of another size: %v %v", why, err)
		}
	}
	e.BlockTokens, e.Hashes = testBlock/2, make([]uint64, 12)
	if _, _, err := tr.stored(&e); err == nil {
		t.Error("half a block is indexed")
	}
}

// TestParentZero: llm-d's simulator gives the first block of a sequence the parent 0.
func TestParentZero(t *testing.T) {
	e := root(1)
	e.HasParent = true
	if s, why, err := newTranslator(testBlock, 10).stored(&e); err != nil || why != notSkipped || s.HasParent {
		t.Errorf("%+v %v %v", s, why, err)
	}
}

// TestNamedCopies: an event without tokens gives the blocks that it names another tier.
func TestNamedCopies(t *testing.T) {
	sink := newNaive()
	tr := newTranslator(testBlock, 10)
	e := root(1, 2)
	e.BlockTokens, e.Tokens = 2*testBlock, make([]uint32, 4*testBlock)
	copies := wire.Event{Kind: wire.BlockStored, Hashes: []uint64{2, 9}, Medium: []byte("CPU")}
	for _, e := range []wire.Event{copies, e, copies} {
		s, why, err := tr.stored(&e)
		if err != nil || why != notSkipped {
			t.Fatal(why, err)
		}
		if err := sink.Store(rank1, s); err != nil {
			t.Fatal(err)
		}
	}
	lower := 0
	for h := range sink.held(rank1) {
		if h.tier == kv.TierHost {
			lower++
		}
	}
	if all := len(sink.held(rank1)); lower != 2 || all != 6 {
		t.Errorf("%d blocks in host memory of %d, want 2 of 6", lower, all)
	}
}

func TestTranslateDoesNotAllocate(t *testing.T) {
	tr := newTranslator(testBlock, 10)
	e := root(1, 2, 3, 4, 5, 6, 7, 8)
	if n := testing.AllocsPerRun(10, func() { _, _, _ = tr.stored(&e) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestStrings(t *testing.T) {
	if s := (kv.Rank{Worker: 3, DP: 4}).String(); s != "3/4" {
		t.Error(s)
	}
	for _, s := range []State{Waiting, Live, Lost, Faulty} {
		if s.String() == "" {
			t.Error("a state without a name")
		}
	}
}

// FuzzTranslate: no input panics, and accepted events are complete.
func FuzzTranslate(f *testing.F) {
	f.Add(payload(root(1, 2, 3)))
	f.Fuzz(func(t *testing.T, p []byte) {
		var d wire.Decoder
		b, err := d.Decode(p)
		if err != nil {
			return
		}
		tr := newTranslator(testBlock, 8)
		for i := range b.Events {
			switch e := &b.Events[i]; e.Kind {
			case wire.BlockStored:
				s, why, err := tr.stored(e)
				if err == nil && why == notSkipped && len(s.Blocks) != len(e.Hashes)*tr.parts || len(tr.salts) > 8 {
					t.Fatalf("%d blocks of %d, %d salts", len(s.Blocks), len(e.Hashes), len(tr.salts))
				}
			case wire.BlockRemoved:
				tr.removed(e)
			}
		}
	})
}

func BenchmarkTranslate(b *testing.B) {
	tr := newTranslator(16, 10)
	e := wire.Event{Kind: wire.BlockStored, BlockTokens: 16, Hashes: make([]uint64, 64), Tokens: make([]uint32, 64*16)}
	for b.Loop() {
		if _, _, err := tr.stored(&e); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/block")
}
