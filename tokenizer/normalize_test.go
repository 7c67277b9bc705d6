package tokenizer

import (
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/internal/opticks"
)

func TestNFC(t *testing.T) {
	plain := trained(t)
	for _, normalizer := range []string{`{"type":"NFC"}`, `{"type":"Sequence","normalizers":[{"type":"NFC"}]}`} {
		tok, err := parse(edit(t, map[string]string{"normalizer": normalizer}), nil)
		if err != nil {
			t.Fatal(err)
		}
		for in, normal := range map[string]string{
			"cafe\u0301 A\u030a":        "caf\u00e9 \u00c5",
			"\u212b<|eot_id|>e\u0301":   "\u00c5<|eot_id|>\u00e9",
			"\u1112\u1161\u11ab":        "\ud55c",
			"e\xff\u0301 \xe2\x82 \xc3": "e\xff\u0301 \xe2\x82 \xc3",
		} {
			if got, want := tok.Encode(nil, in), plain.Encode(nil, normal); !slices.Equal(got, want) {
				t.Errorf("%s: %q is %v, want that of %q, %v", normalizer, in, got, normal, want)
			}
		}
	}
}

func TestNormalTextDoesNotAllocate(t *testing.T) {
	tok, err := parse(edit(t, map[string]string{"normalizer": `{"type":"NFC"}`}), nil)
	if err != nil {
		t.Fatal(err)
	}
	text := opticks.Text()[:4000]
	dst := tok.Encode(nil, text)
	if n := testing.AllocsPerRun(20, func() { dst = tok.Encode(dst[:0], text) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
