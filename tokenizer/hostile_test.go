package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/kv"
)

var flipStep = flag.Int("flip-step", 31, "TestBitFlips flips one bit in so many; an odd number, to reach all positions within a byte")

// small returns a complete tokenizer.json of some hundred tokens, without white space.
func small(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/small.json")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := json.Compact(&out, data); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// kinded checks that err, if any, wraps ErrInvalid or ErrUnsupported. what and at name the file
// in a failure.
func kinded(t *testing.T, what string, at int, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrUnsupported) {
		t.Fatalf("%s %d: an error without a kind: %v", what, at, err)
	}
}

func TestCutFilesAreRefused(t *testing.T) {
	file := small(t)
	for n := range file {
		_, err := parse(file[:n:n], nil)
		if err == nil {
			t.Fatalf("cut to %d of %d bytes, it is accepted", n, len(file))
		}
		kinded(t, "cut to", n, err)
	}
}

// TestBitFlips: a file with one flipped bit is refused, or gives a working tokenizer with other
// tokens.
func TestBitFlips(t *testing.T) {
	file := small(t)
	refusals, flips := 0, 0
	for bit := 0; bit < 8*len(file); bit += *flipStep {
		file[bit/8] ^= 1 << (bit % 8)
		tok, err := parse(file, nil)
		kinded(t, "bit", bit, err)
		if flips++; err != nil {
			refusals++
		} else {
			all := tok.EncodePrompt(nil, "the light <s>é\xff")
			for id := range tok.VocabSize() + 2 {
				all = append(all, kv.Token(id))
			}
			tok.Decode(nil, all, true)
			stream(tok, all)
		}
		file[bit/8] ^= 1 << (bit % 8)
	}
	if refusals < flips/2 {
		t.Errorf("%d of %d flips are refused, want most", refusals, flips)
	}
}

// TestDeepFilesAreRefused: a parser that recursed as deep as the file would overflow its stack.
func TestDeepFilesAreRefused(t *testing.T) {
	deep := strings.Repeat(`{"a":[`, 500_000)
	for _, file := range []string{deep, `{"model":` + deep, `{"normalizer":` + deep, `{"added_tokens":[` + deep, `{"other":` + deep} {
		_, err := parse([]byte(file), nil)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "depth") {
			t.Errorf("%.30s: error %.200v", file, err)
		}
	}
	if _, err := parse(small(t), []byte(deep)); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "tokenizer_config.json") {
		t.Errorf("tokenizer_config.json: error %.200v", err)
	}
}

// TestEveryRuneRoundTrips: every rune can be decoded from its tokens. Each family is tested with
// a part of Unicode.
func TestEveryRuneRoundTrips(t *testing.T) {
	f := readFamilies(t)
	var encoders []*Encoder
	for _, name := range lossless {
		encoders = append(encoders, f.open(t, f.find(t, name)).NewEncoder())
	}
	const share = 61 // small, so that neighbours fall to different families
	var text []byte
	var ids []kv.Token
	for lo := rune(0); lo <= utf8.MaxRune; lo += share {
		text = text[:0]
		for r := lo; r < lo+share; r++ {
			if utf8.ValidRune(r) {
				text = utf8.AppendRune(text, r)
			}
		}
		i := int(lo/share) % len(encoders)
		ids = encodedBy(encoders[i], ids[:0], string(text))
		if got := encoders[i].t.Decode(nil, ids, false); !bytes.Equal(got, text) {
			t.Fatalf("%s: U+%04X to U+%04X: %q comes back as %q", lossless[i], lo, lo+share-1, text, got)
		}
	}
}

// FuzzDecode: for any tokens, known or not, Decode and all ways of streaming return, and agree.
func FuzzDecode(f *testing.F) {
	all := readFamilies(f)
	var toks []*Tokenizer
	for i := range all.Families {
		toks = append(toks, all.open(f, &all.Families[i]))
	}
	f.Add([]byte{0, 1, 2, 3, 255, 255, 0, 100, 1, 100})
	f.Add([]byte{0, 195, 0, 169, 0, 226})
	f.Fuzz(func(t *testing.T, data []byte) {
		var ids []kv.Token
		for i := 0; i+1 < len(data); i += 2 {
			ids = append(ids, kv.Token(data[i])<<8|kv.Token(data[i+1]))
		}
		for i, tok := range toks {
			if got, want := stream(tok, ids), toValid(tok.Decode(nil, ids, true)); got != want {
				t.Fatalf("%s: %v streams as %q, decodes as %q", all.Families[i].Name, ids, got, want)
			}
		}
	})
}
