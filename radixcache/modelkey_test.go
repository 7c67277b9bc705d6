package radixcache

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// In the model a sequence is a string with a byte per token: its kind (3 bits), the hash of
// its medium (2 bits, 0 is none), and whether it is the first of a medium's span.
const (
	plainKinds  = 5 // values of plain tokens, and of a medium's placeholders
	hashShift   = 3
	firstOfSpan = 1 << 5
)

func kindOf(e byte) kv.Token { return kv.Token(e & (1<<hashShift - 1)) }
func hashOf(e byte) uint64   { return uint64(e &^ firstOfSpan >> hashShift) }

// tokensOf returns the tokens as a caller has them, with placeholders for media.
func tokensOf(seq string) []kv.Token {
	out := make([]kv.Token, len(seq))
	for i := range out {
		out[i] = kindOf(seq[i])
	}
	return out
}

// mediaOf returns the spans of a sequence. A span that the sequence's end cuts is a shorter
// span.
func mediaOf(seq string) []kv.Media {
	var out []kv.Media
	for i := range len(seq) {
		hash := hashOf(seq[i])
		switch last := len(out) - 1; {
		case hash == 0:
		case seq[i]&firstOfSpan != 0:
			out = append(out, kv.Media{At: i, Tokens: 1, Hash: hash})
		default:
			out[last].Tokens++
		}
	}
	return out
}

// modelNamespaces are the namespaces of the harness. The public tokens of one with a Salt
// are in the namespace that outerOf returns.
var modelNamespaces = []kv.Namespace{
	{}, {LoRA: "a"}, {LoRA: "a", Salt: "bc"}, {LoRA: "a", Salt: "b"}, {LoRA: "ab", Salt: "c"}, {Salt: "s"}, {Model: "m", Salt: "s"}, {Model: "m"}, {LoRA: "ab"},
}

// outerOf returns the namespace without its salt.
func outerOf(ns int) int {
	plain := modelNamespaces[ns]
	plain.Salt = ""
	return slices.Index(modelNamespaces, plain)
}

// spec is a key in the model's terms.
type spec struct {
	ns     int
	public int // PublicTokens
	seq    string
}

func (s spec) String() string {
	return fmt.Sprintf("namespace %d, public %d, %q", s.ns, s.public, s.seq)
}

// key returns the spec as a Key, in slices of its own.
func (s spec) key() Key {
	return Key{Namespace: modelNamespaces[s.ns], Tokens: tokensOf(s.seq), PublicTokens: s.public, Media: mediaOf(s.seq)}
}

// boundary returns the number of public tokens of a spec.
func (m *model) boundary(s spec) int {
	if modelNamespaces[s.ns].Salt == "" {
		return 0
	}
	return m.floor(min(s.public, len(s.seq)))
}

// mspace identifies a set of keys that share pages: a namespace, or a private space after a
// public sequence.
type mspace struct {
	tree    int // flushes before it
	ns      int
	anchor  string // the public sequence before it
	private int    // of a dead tree: private spaces that were opened twice are different ones
}

// mkey names a page by all tokens up to its last.
type mkey struct {
	mspace
	seq string
}

// line is a path through one tree, from its root.
type line struct {
	spec
	tree, private int
}

func (m *model) live(s spec) line { return line{spec: s, tree: m.epoch} }

// at returns the key of the page that ends after n tokens of a line.
func (m *model) at(l line, n int) mkey {
	public := m.boundary(l.spec)
	switch {
	case n <= public && public > 0:
		return mkey{mspace{tree: l.tree, ns: outerOf(l.ns)}, l.seq[:n]}
	case public > 0:
		return mkey{mspace{l.tree, l.ns, l.seq[:public], l.private}, l.seq[:n]}
	}
	return mkey{mspace{tree: l.tree, ns: l.ns}, l.seq[:n]}
}

// above returns the key of the whole pages before k's page.
func (m *model) above(k mkey) mkey {
	before := k.seq[:m.floor(len(k.seq)-1)]
	if k.anchor != "" && len(before) == len(k.anchor) {
		return mkey{mspace{tree: k.tree, ns: outerOf(k.ns)}, before}
	}
	return mkey{k.mspace, before}
}

func (m *model) isTail(k mkey) bool { return len(k.seq)%m.page != 0 }
func (m *model) floor(n int) int    { return n - n%m.page }

// hash returns the hash of the block that ends at k, computed from scratch; 0 if none does.
func (m *model) hash(k mkey) kv.BlockHash {
	if len(k.seq)%m.block != 0 {
		return 0
	}
	var last kv.BlockHash
	for n := m.block; n <= len(k.seq); n += m.block {
		ns := k.ns
		if n <= len(k.anchor) {
			ns = outerOf(k.ns)
		}
		local := localHash(tokensOf(k.seq[n-m.block:n]), mediaIn(k.seq[n-m.block:n]), modelNamespaces[ns])
		if n == m.block {
			last = kv.BlockHash(local)
		} else {
			last = kv.Chain(last, local)
		}
	}
	return last
}

func localHash(tokens []kv.Token, media []uint64, ns kv.Namespace) kv.LocalHash {
	if len(media) == 0 {
		local := kv.HashLocal(tokens, ns.Seed())
		return local
	}
	local, _ := kv.HashLocalMedia(tokens, slices.Clone(media), ns.Seed(), nil)
	return local
}

// mediaIn returns the hashes of the media in a block, each once, ascending.
func mediaIn(block string) []uint64 {
	var out []uint64
	for i := range len(block) {
		if h := hashOf(block[i]); h != 0 {
			out = append(out, h)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func commonBytes(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
