package record

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

var testLayout = mempool.Layout{PageTokens: 4, PageBytes: 64, ExtentPages: 4}

func seq(from, n int) []kv.Token {
	t := make([]kv.Token, n)
	for i := range t {
		t[i] = kv.Token(from + i)
	}
	return t
}

func TestRecordRoundTrip(t *testing.T) {
	id := mempool.Identity{ModelID: "m", NumericsID: "n", PageLayout: mempool.PageLayout, Layout: testLayout}
	f := FormatOf(&id, nil)
	media := []kv.Media{{At: 18, Tokens: 2, Hash: 5}}
	xs := testLayout.AppendExtents(nil, kv.Namespace{Model: "x", LoRA: "y", Salt: "z"}, seq(3, 24), media)
	r := Record{Extent: xs[1], Seq: 9, PayloadBytes: testLayout.Bytes(&xs[1]), PayloadSum: 77}
	b := f.AppendHeader(nil, &r)
	got, err := f.ParseHeader(append(b, make([]byte, 100)...))
	if err != nil || got.Key != r.Key || got.Parent != xs[0].Key || got.Seq != 9 || got.PayloadSum != 77 || got.Namespace != r.Namespace ||
		!slices.Equal(got.Tokens, r.Tokens) || !slices.Equal(got.Media, media) || got.Start != 16 {
		t.Fatalf("%+v, %v", got, err)
	}
	if len(b) > f.HeaderBytes() || f.HeaderBytes()%4096 != 0 || f.SlotBytes()%4096 != 0 {
		t.Errorf("header %d of %d, slot %d", len(b), f.HeaderBytes(), f.SlotBytes())
	}
	for i := range b {
		for bit := range 8 {
			bad := bytes.Clone(b)
			bad[i] ^= 1 << bit
			if _, err := f.ParseHeader(bad); !errors.Is(err, mempool.ErrCorrupt) && !errors.Is(err, mempool.ErrForeign) {
				t.Fatalf("bit %d of byte %d flipped: %v", bit, i, err)
			}
		}
	}
	if _, err := f.ParseHeader(make([]byte, 4096)); !errors.Is(err, mempool.ErrMiss) {
		t.Errorf("zeros: %v", err)
	}
	id.NumericsID = "n2"
	g := FormatOf(&id, nil)
	if _, err := g.ParseHeader(b); !errors.Is(err, mempool.ErrForeign) {
		t.Errorf("other numerics: %v", err)
	}
}

func FuzzParseHeader(f *testing.F) {
	id := mempool.Identity{ModelID: "m", NumericsID: "n", PageLayout: mempool.PageLayout, Layout: testLayout}
	form := FormatOf(&id, nil)
	for _, x := range testLayout.AppendExtents(nil, kv.Namespace{Salt: "z"}, seq(3, 24), []kv.Media{{At: 1, Tokens: 1, Hash: 3}}) {
		f.Add(form.AppendHeader(nil, &Record{Extent: x, PayloadBytes: testLayout.Bytes(&x)})[:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 160 { // parse what lies beyond the checksum too
			form.parse(b)
		}
		r, err := form.ParseHeader(b)
		if err != nil {
			return
		}
		if again := form.AppendHeader(nil, &r); !bytes.Equal(again, b[:len(again)]) {
			t.Fatal("a header is read and written otherwise")
		}
	})
}
