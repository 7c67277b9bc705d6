package wire

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

func pack(t testing.TB, v any) []byte {
	b, err := msgpack.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type list = []any

// mapped returns a map with its keys in this order.
func mapped(t testing.TB, pairs ...any) msgpack.RawMessage {
	raw := []byte{0x80 | byte(len(pairs)/2)}
	for _, v := range pairs {
		raw = append(raw, pack(t, v)...)
	}
	return raw
}

func TestMalformed(t *testing.T) {
	hashes := list{uint64(1), uint64(2)}
	stored := func(change func(e list) list) any {
		e := list{"BlockStored", hashes, nil, list{1, 2, 3, 4}, 2, nil, "GPU", nil}
		return list{1.0, list{change(e)}, 0}
	}
	set := func(at int, v any) any { return stored(func(e list) list { e[at] = v; return e }) }
	for name, v := range map[string]any{
		"nil":                   nil,
		"a number":              7,
		"too few elements":      list{1.0},
		"events are no list":    list{1.0, 3, 0},
		"time is text":          list{"now", list{}},
		"negative rank":         list{1.0, list{}, -1},
		"event without tag":     list{1.0, list{list{}}},
		"tag is a number":       list{1.0, list{list{3}}},
		"too few fields":        list{1.0, list{list{"BlockStored", hashes, nil, list{1, 2}}}},
		"removed nothing":       list{1.0, list{list{"BlockRemoved"}}},
		"no hashes":             set(1, nil),
		"hash of text":          set(1, list{"a", "b"}),
		"hash empty":            set(1, list{[]byte{}, []byte{}}),
		"hash of two lengths":   set(1, list{[]byte{1, 2}, []byte{1}}),
		"hash too long":         set(1, list{make([]byte, 65), make([]byte, 65)}),
		"hash float":            set(1, list{1.5, 2.5}),
		"parent of text":        set(2, "x"),
		"token negative":        set(3, list{1, 2, 3, -4}),
		"token too large":       set(3, list{1, 2, 3, uint64(1) << 32}),
		"token missing":         set(3, list{1, 2, 3}),
		"tokens nil":            set(3, nil),
		"block size zero":       set(4, 0),
		"block size nil":        set(4, nil),
		"block size negative":   set(4, -2),
		"block size huge":       set(4, math.MaxInt64),
		"medium a number":       set(6, 3),
		"medium too long":       set(6, string(make([]byte, 2000))),
		"extra of other length": stored(func(e list) list { return append(e, list{nil}) }),
		"extra no list":         stored(func(e list) list { return append(e, 3) }),
		"group negative":        stored(func(e list) list { return append(e, nil, -1) }),
		"map without type":      list{1.0, list{map[string]any{"block_hashes": hashes}}},
		"map of stored alone":   list{1.0, list{map[string]any{"type": "BlockStored"}}},
		"map batch half":        map[string]any{"ts": 1.0},
	} {
		t.Run(name, func(t *testing.T) {
			var d Decoder
			if b, err := d.Decode(pack(t, v)); !errors.Is(err, ErrMalformed) {
				t.Errorf("%v, %+v", err, b)
			}
		})
	}
	var d Decoder
	if _, err := d.Decode(pack(t, stored(func(e list) list { return e }))); err != nil {
		t.Fatalf("the event that is broken above: %v", err)
	}
}

// TestTruncated: every proper prefix of a batch is malformed, and so is a batch with an extra
// byte.
func TestTruncated(t *testing.T) {
	var d Decoder
	for _, g := range goldens(t) {
		payload := g.payload(t)
		for n := range payload {
			if _, err := d.Decode(payload[:n]); !errors.Is(err, ErrMalformed) {
				t.Fatalf("%s, first %d bytes: %v", g.Name, n, err)
			}
		}
		if _, err := d.Decode(append(payload, 0)); !errors.Is(err, ErrMalformed) {
			t.Fatalf("%s and a byte: %v", g.Name, err)
		}
	}
}

// TestPublishersOfToday: what SGLang and vLLM write besides the fields of the goldens. The forms are those of SGLang's
// python/sglang/srt/disaggregation/kv_events.py (arrays with a map after the medium, later maps) and of vLLM's
// vllm/distributed/kv_events.py (locality).
func TestPublishersOfToday(t *testing.T) {
	hashes, tokens := list{uint64(1)}, list{1, 2}
	var d Decoder
	for name, c := range map[string]struct {
		event                  any
		salt, medium, locality string
		namesOnly              bool
	}{
		"SGLang, array":         {list{"BlockStored", hashes, nil, tokens, 2, nil, "EXTERNAL", map[string]any{"cache_salt": "tenant"}}, "tenant", "EXTERNAL", "", false},
		"SGLang, with more":     {list{"BlockStored", hashes, nil, tokens, 2, nil, "GPU", map[string]any{"session_id": "s", "cache_salt": "tenant"}}, "tenant", "GPU", "", false},
		"SGLang, session alone": {list{"BlockStored", hashes, nil, tokens, 2, nil, "GPU", map[string]any{"session_id": "s"}}, "", "GPU", "", false},
		"SGLang, no salt":       {list{"BlockStored", hashes, nil, tokens, 2, nil, "GPU"}, "", "GPU", "", false},
		"SGLang, map": {mapped(t, "type", "BlockStored", "block_hashes", hashes, "parent_block_hash", nil, "token_ids", tokens, "block_size", 2,
			"lora_id", nil, "medium", "GPU", "cache_salt", "tenant"), "tenant", "GPU", "", false},
		"a long salt":     {list{"BlockStored", hashes, nil, tokens, 2, nil, "GPU", map[string]any{"cache_salt": strings.Repeat("x", 5000)}}, strings.Repeat("x", 5000), "GPU", "", false},
		"vLLM, locality":  {list{"BlockStored", hashes, nil, tokens, 2, nil, "STORAGE", nil, nil, 0, nil, nil, "REMOTE", "connector"}, "", "STORAGE", "REMOTE", false},
		"vLLM, removed":   {list{"BlockRemoved", hashes, "STORAGE", 0, "LOCAL", nil}, "", "STORAGE", "LOCAL", false},
		"vLLM, offloaded": {list{"BlockStored", hashes, nil, list{}, 0, nil, "CPU", nil}, "", "CPU", "", true},
	} {
		b, err := d.Decode(pack(t, list{1.0, list{c.event}, nil}))
		if err != nil || len(b.Events) != 1 {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if e := &b.Events[0]; string(e.Salt) != c.salt || string(e.Medium) != c.medium || string(e.Locality) != c.locality || e.LoRA != nil ||
			e.NamesOnly() != c.namesOnly {
			t.Errorf("%s: salt %.20q, medium %q, locality %q, names only %v", name, e.Salt, e.Medium, e.Locality, e.NamesOnly())
		}
	}
}

// TestUnknown: additions of newer publishers are skipped.
func TestUnknown(t *testing.T) {
	deep := any(1)
	for range 1000 {
		deep = list{deep}
	}
	v := list{1.0, list{
		list{"BlockMoved", 1, deep},
		map[string]any{"type": "BlockMoved"},
		list{"BlockRemoved", list{uint64(9)}, nil, nil, "reason", deep},
		list{"AllBlocksCleared", "why"},
	}, 2, "more", deep}
	var d Decoder
	b, err := d.Decode(pack(t, v))
	if err != nil {
		t.Fatal(err)
	}
	if b.Unknown != 2 || len(b.Events) != 2 || b.Rank != 2 || b.Events[0].Hashes[0] != 9 || b.Events[1].Kind != AllBlocksCleared {
		t.Errorf("%+v", b)
	}
}

func TestLimits(t *testing.T) {
	removed := func(n int) []byte {
		b := Batch{Events: []Event{{Kind: BlockRemoved, Hashes: make([]uint64, n)}}}
		return AppendBatch(nil, &b, Form{})
	}
	cleared := func(n int) []byte {
		b := Batch{Events: make([]Event, n)}
		for i := range b.Events {
			b.Events[i].Kind = AllBlocksCleared
		}
		return AppendBatch(nil, &b, Form{})
	}
	length := len(removed(4))
	for _, c := range []struct {
		name   string
		limits Limits
		batch  []byte
		ok     bool
	}{
		{"blocks at", Limits{Blocks: 4}, removed(4), true},
		{"blocks above", Limits{Blocks: 3}, removed(4), false},
		{"events at", Limits{Events: 4}, cleared(4), true},
		{"events above", Limits{Events: 3}, cleared(4), false},
		{"bytes at", Limits{PayloadBytes: length}, removed(4), true},
		{"bytes above", Limits{PayloadBytes: length - 1}, removed(4), false},
	} {
		d := Decoder{Limits: c.limits}
		if _, err := d.Decode(c.batch); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestAnnounced: announced lengths are not trusted.
func TestAnnounced(t *testing.T) {
	head := "\x93\xcb\x00\x00\x00\x00\x00\x00\x00\x00"
	for _, tail := range []string{
		"\xdd\xff\xff\xff\xff",
		"\x91\xdd\xff\xff\xff\xff\xa3abc",
		"\x91\x92\xacBlockRemoved\xdd\x00\x03\xff\xff",
		"\x91\x98\xabBlockStored\x91\x01\xc0\xdd\xff\xff\xff\xff",
		"\x91\x92\xacBlockRemoved\x91\xc6\xff\xff\xff\xff",
		"\x91\xdf\xff\xff\xff\xff\xa4type\xacBlockRemoved",
	} {
		var d Decoder
		allocated := testing.AllocsPerRun(1, func() {
			if _, err := d.Decode([]byte(head + tail)); !errors.Is(err, ErrMalformed) {
				t.Errorf("%q: %v", tail, err)
			}
		})
		if allocated > 20 || cap(d.tokens) > 64 || cap(d.hashes) > 64 {
			t.Errorf("%q: %v allocations, %d tokens, %d hashes", tail, allocated, cap(d.tokens), cap(d.hashes))
		}
	}
}

func TestDecodeDoesNotAllocate(t *testing.T) {
	var d Decoder
	payload := AppendBatch(nil, benchBatch(64), Form{})
	if n := testing.AllocsPerRun(10, func() {
		if _, err := d.Decode(payload); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	dst := make([]byte, 0, len(payload))
	b := benchBatch(64)
	if n := testing.AllocsPerRun(10, func() { dst = AppendBatch(dst[:0], b, Form{}) }); n != 0 {
		t.Errorf("%v allocations to encode", n)
	}
}

// benchBatch returns one prompt of that many blocks of 16 tokens.
func benchBatch(blocks int) *Batch {
	e := Event{Kind: BlockStored, BlockTokens: 16, Medium: []byte("GPU")}
	for i := range blocks {
		e.Hashes = append(e.Hashes, 0x9e3779b97f4a7c15*uint64(i+1))
		for j := range 16 {
			e.Tokens = append(e.Tokens, uint32(i*7919+j*104729)%150000)
		}
	}
	return &Batch{Time: 1.5, Events: []Event{e}, HasRank: true}
}

func BenchmarkEncode(b *testing.B) {
	for _, arrays := range []bool{false, true} {
		b.Run(fmt.Sprintf("blocks=64/arrays=%v", arrays), func(b *testing.B) {
			batch, dst := benchBatch(64), []byte(nil)
			for b.Loop() {
				dst = AppendBatch(dst[:0], batch, Form{Arrays: arrays})
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/block")
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, arrays := range []bool{false, true} {
		b.Run(fmt.Sprintf("blocks=64/arrays=%v", arrays), func(b *testing.B) {
			var d Decoder
			payload := AppendBatch(nil, benchBatch(64), Form{Arrays: arrays})
			for b.Loop() {
				if _, err := d.Decode(payload); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/block")
		})
	}
}

// FuzzDecode: decoded batches are bounded, decode the same again once encoded, and are valid
// msgpack for another decoder.
func FuzzDecode(f *testing.F) {
	for _, g := range goldens(f) {
		f.Add(g.payload(f))
	}
	f.Add([]byte("\x92\xcb\x00\x00\x00\x00\x00\x00\x00\x00\xdd\xff\xff\xff\xff"))
	limits := Limits{PayloadBytes: 1 << 16, Events: 64, Blocks: 256}
	f.Fuzz(func(t *testing.T, payload []byte) {
		d, d2 := Decoder{Limits: limits}, Decoder{}
		b, err := d.Decode(payload)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		if len(b.Events) > limits.Events || len(d.hashes) > limits.Blocks || len(d.tokens) > len(payload) {
			t.Fatal("beyond the limits")
		}
		for i := range b.Events {
			for x, n := b.Events[i].ExtraKeys(), 0; ; n++ {
				k, ok := x.Next()
				if !ok {
					break
				}
				if k.Block >= len(b.Events[i].Hashes) || n > len(payload) {
					t.Fatalf("extra key of block %d", k.Block)
				}
			}
		}
		for _, form := range []Form{{}, {Arrays: true}} {
			written := AppendBatch(nil, b, form)
			again, err := d2.Decode(written)
			if err != nil {
				t.Fatalf("%+v: %v\n%x", form, err, written)
			}
			third := AppendBatch(nil, again, form)
			if string(third) != string(written) {
				t.Fatalf("%+v:\n%x\n%x", form, written, third)
			}
			var any []msgpack.RawMessage
			if err := msgpack.Unmarshal(written, &any); err != nil || len(any) < 2 {
				t.Fatalf("another reader: %v", err)
			}
		}
	})
}
