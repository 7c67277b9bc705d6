package tokenizer

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// TestTokenBytes: no text has more bytes than TokenBytes for each of its tokens. Files that shorten texts
// have no such number.
func TestTokenBytes(t *testing.T) {
	f := readFamilies(t)
	bounded := 0
	for i := range f.Families {
		of := &f.Families[i]
		tok, err := parse(f.tokenizerJSON(t, of), nil)
		if err != nil {
			t.Fatalf("%s: %v", of.Name, err)
		}
		most := tok.TokenBytes()
		if most == 0 {
			continue
		}
		bounded++
		for _, text := range append(f.Texts, strings.Repeat(" ", 1000), strings.Repeat("a", 1000), strings.Repeat("é", 1000), "\U0001F600") {
			if n := len(tok.Encode(nil, text)); len(text) > n*most {
				t.Errorf("%s: %d tokens for %d bytes of %.60q, want at most %d bytes each", of.Name, n, len(text), text, most)
			}
		}
	}
	if bounded < 3 || bounded == len(f.Families) {
		t.Errorf("%d of %d families are bounded: nothing was tested", bounded, len(f.Families))
	}
}

// TestTokenBytesUnbounded: each way to shorten a text is seen.
func TestTokenBytesUnbounded(t *testing.T) {
	plain := func() *Tokenizer {
		tok := &Tokenizer{raw: newMatcher(), normalized: newMatcher()}
		tok.longest, tok.every, tok.byteLevel, tok.unk = 7, true, true, noToken
		return tok
	}
	if n := plain().longestToken(); n != 7 {
		t.Fatalf("%d bytes", n)
	}
	for name, change := range map[string]func(tok *Tokenizer){
		"bytes without a token": func(tok *Tokenizer) { tok.bytes[0xFF] = noToken },
		"fused":                 func(tok *Tokenizer) { tok.bytes[0xFF], tok.unk, tok.fuseUnk = noToken, 1, true },
		"NFC":                   func(tok *Tokenizer) { tok.normalizers = []normalizer{{kind: normalForm}} },
		"lower case":            func(tok *Tokenizer) { tok.normalizers = []normalizer{{kind: normalLowercase}} },
		"strip":                 func(tok *Tokenizer) { tok.normalizers = []normalizer{{kind: normalStrip}} },
		"replace":               func(tok *Tokenizer) { tok.normalizers = []normalizer{{kind: normalReplace, old: "ab", content: "a"}} },
		"removed":               func(tok *Tokenizer) { tok.cutters = []cutter{{behavior: removed}} },
		"lstrip":                func(tok *Tokenizer) { tok.raw.add(added{content: "<x>", lstrip: true}) },
		"rstrip":                func(tok *Tokenizer) { tok.normalized.add(added{content: "<x>", rstrip: true}) },
	} {
		tok := plain()
		if change(tok); tok.longestToken() != 0 {
			t.Errorf("%s: %d bytes a token", name, tok.longestToken())
		}
	}
	tok := plain()
	tok.added = map[string]kv.Token{"<a long token>": 1}
	tok.normalizers = []normalizer{{kind: normalReplace, old: " ", content: "▁"}, {kind: normalPrepend, content: "▁"}}
	if n := tok.longestToken(); n != 14 {
		t.Errorf("%d bytes", n)
	}
}

// TestLongPieceIsRefusedFirst: a piece that has too many tokens, or needs too large buffers, is refused
// before memory is allocated for it.
func TestLongPieceIsRefusedFirst(t *testing.T) {
	f := readFamilies(t)
	tok, err := parse(f.tokenizerJSON(t, f.find(t, "llama3")), nil)
	if err != nil {
		t.Fatal(err)
	}
	e, long := tok.NewEncoder(), strings.Repeat("a", 8<<20)
	for _, tc := range []struct {
		o    Options
		want error
	}{{Options{MaxTokens: 1000}, ErrTooLong}, {Options{Scratch: 1 << 20}, ErrScratch}} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := e.EncodeWith(nil, long, tc.o)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, tc.want) || n > 1<<20 {
			t.Errorf("%+v: %v, with %d bytes allocated", tc.o, err, n)
		}
	}
	short := strings.Repeat("a", 1000)
	if _, err := e.EncodeWith(nil, short, Options{Scratch: 1000 * PieceBytes}); err != nil {
		t.Error(err)
	}
	if _, err := e.EncodeWith(nil, short, Options{Scratch: 1000*PieceBytes - 1}); !errors.Is(err, ErrScratch) {
		t.Errorf("one byte too few: %v", err)
	}
}
