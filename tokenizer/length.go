package tokenizer

import "unicode/utf8"

// TokenBytes returns the most bytes of text that one token can stand for, so a text of n tokens has at
// most n times as many bytes. It returns 0 if there is no such number, because the file shortens texts
// before they are cut, leaves parts of them out, or lets a token absorb the white space around it.
func (t *Tokenizer) TokenBytes() int { return t.tokenBytes }

// longestToken computes TokenBytes.
func (t *Tokenizer) longestToken() int {
	if t.drops() || t.shortens() || t.raw.absorbs() || t.normalized.absorbs() {
		return 0
	}
	most := t.longest
	if !t.byteLevel {
		most *= utf8.UTFMax // a symbol is a rune
	}
	for content := range t.added {
		most = max(most, len(content))
	}
	return max(most, utf8.UTFMax) // the unknown token stands for a rune
}

// shortens reports whether a normalizer or a pre-tokenizer may make texts shorter.
func (t *Tokenizer) shortens() bool {
	for i := range t.normalizers {
		n := &t.normalizers[i]
		longer := n.kind == normalPrepend || n.kind == normalReplace && n.pattern == nil && len(n.content) >= len(n.old)
		if !longer {
			return true
		}
	}
	for i := range t.cutters {
		if t.cutters[i].behavior == removed {
			return true
		}
	}
	return false
}

// absorbs reports whether a token of m absorbs the white space next to it.
func (m *matcher) absorbs() bool {
	for i := range m.tokens {
		if m.tokens[i].lstrip || m.tokens[i].rstrip {
			return true
		}
	}
	return false
}
