package tokenizer

import (
	"cmp"
	"strings"
	"unicode/utf8"
)

// wantDecoder ends the errors about decoders.
const wantDecoder = "supported are ByteLevel, Metaspace, and a Sequence of Replace, ByteFallback, Fuse and Strip in this order"

// readDecoder computes from the file's decoder p the text that each token decodes to, and how
// that text differs at the beginning of an output. The text of a token then never depends on the
// tokens before it, so a stream can be decoded token by token. It refuses decoders for which that
// is not possible.
func (t *Tokenizer) readDecoder(p *partJSON) {
	if p == nil {
		unsupported("decoder null; %s", wantDecoder)
	}
	steps := p.steps("decoder", 0)
	if len(steps) == 1 && (steps[0].Type == "ByteLevel" || steps[0].Type == "Metaspace") {
		if t.byteLevel != (steps[0].Type == "ByteLevel") {
			unsupported("decoder %q with a pre_tokenizer that is not its counterpart; %s", steps[0].Type, wantDecoder)
		}
		if !t.byteLevel {
			t.decodeMetaspace(steps[0])
		}
		return
	}
	if t.byteLevel {
		unsupported("decoder %q with the pre_tokenizer ByteLevel; supported is ByteLevel", p.Type)
	}
	t.decodeChain(steps)
}

// decodeMetaspace computes the texts for a Metaspace decoder: each replacement character becomes
// a space. At the beginning of a text, where the encoder may have added one, the replacement
// characters of the first token are dropped, unless prepend_scheme is "never"
// (huggingface/tokenizers, pre_tokenizers/metaspace.rs).
func (t *Tokenizer) decodeMetaspace(p *partJSON) {
	replacement := cmp.Or(p.Replacement, metaspace)
	if prependOf(p) != prependNever {
		t.first = make([]string, len(t.text))
		for id, s := range t.text {
			t.first[id] = strings.ReplaceAll(s, replacement, "")
		}
	}
	for id, s := range t.text {
		t.text[id] = strings.ReplaceAll(s, replacement, " ")
	}
}

// decodeChain computes the texts for the decoder of files converted from SentencePiece's:
// Replace, ByteFallback, Fuse and Strip, in this order.
func (t *Tokenizer) decodeChain(steps []*partJSON) {
	order := map[string]int{"Replace": 1, "ByteFallback": 2, "Fuse": 3, "Strip": 4}
	stage := 0
	for _, p := range steps {
		at, ok := order[p.Type]
		switch {
		case !ok:
			unsupported("decoder %q; %s", p.Type, wantDecoder)
		case at < stage || at == stage && at > 1 || at == 4 && stage != 3:
			unsupported("decoder %q at its place in the Sequence; %s", p.Type, wantDecoder)
		}
		stage = at
		switch p.Type {
		case "Replace":
			if p.Pattern.Regex != "" {
				unsupported("decoder Replace with a regular expression; supported are strings")
			}
			if p.Pattern.String == "" {
				continue
			}
			for id, s := range t.text {
				t.text[id] = strings.ReplaceAll(s, p.Pattern.String, p.Content)
			}
		case "ByteFallback":
			for id, s := range t.text {
				if b, ok := byteNamed(s); ok {
					t.text[id] = string([]byte{b})
				}
			}
		case "Strip":
			if len(p.Content) != 1 || p.Content[0] >= utf8.RuneSelf || p.Stop != 0 {
				unsupported("decoder Strip of %q, %d at the end; supported is one ASCII character at the beginning", p.Content, p.Stop)
			}
			t.strip, t.stripByte = int(p.Start), p.Content[0]
		}
	}
	if stage == 0 {
		unsupported("decoder Sequence without steps; %s", wantDecoder)
	}
}
