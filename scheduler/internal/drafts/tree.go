package drafts

import (
	"math/bits"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler/internal/planted"
)

const (
	// gram is the number of tokens that must agree with a text of another request. There are more such
	// texts than own tokens, so more must agree by chance.
	gram = 4
	// mostTexts bounds the texts that can be found, at about 100 bytes each.
	mostTexts = 4096
	// mostPlaces bounds the places in all texts: 12 bytes each, 3 MiB.
	mostPlaces = 1 << 18
	// ahead is the number of tokens that are read from a text at a time.
	ahead = 64
)

// Texts knows where tokens occurred in the prompts and outputs that a radix tree holds. A text belongs to
// the namespace of its request, and only requests of the same namespace find it. The tree has the tokens:
// of a text whose end was evicted, nothing is found.
type Texts struct {
	cache  *radixcache.Cache
	texts  []indexed    // by number, modulo the length
	last   uint32       // number of the latest text; the first is 1
	places [][2]spotted // by hash: the latest place of other tokens or texts comes first
	fault  planted.Fault
}

// indexed is a text: a path of the tree.
type indexed struct {
	ns     kv.Namespace
	number uint32
	place  radixcache.Place
	tokens int // up to place
}

// spotted is a place in a text: a token follows tokens with this hash.
type spotted struct {
	hash, text uint32
	at         int32
}

// NewTexts returns an index without texts of cache, whose pages have room for that number of tokens.
func NewTexts(cache *radixcache.Cache, tokens int) *Texts {
	size := 1 << bits.Len(uint(min(max(tokens, 1<<10), mostPlaces)-1))
	return &Texts{cache: cache, texts: make([]indexed, mostTexts), places: make([][2]spotted, size/2)}
}

// Plant puts a fault into x that package schedtest must find.
func (x *Texts) Plant(fault planted.Fault) { x.fault = fault }

// Add adds places in the text of a request: the positions [from, to) of tokens, where the path of the
// tree to a node has the first to of tokens. number is that of an earlier call for the same text, or 0;
// Add returns its number. A caller passes no positions that another namespace may not read.
func (x *Texts) Add(number uint32, ns kv.Namespace, tokens []kv.Token, from, to int, node radixcache.NodeID) uint32 {
	t := x.text(number)
	if t == nil {
		x.last++
		t = &x.texts[x.last%mostTexts]
		*t = indexed{ns: ns, number: x.last}
	}
	t.place, t.tokens = radixcache.PlaceOf(node, to, x.cache), to
	seed := x.seed(ns)
	for p := max(from, gram); p < to; p++ {
		h := hashGram(seed, tokens[p-gram:p])
		b := x.bucket(h)
		if one := (spotted{uint32(h), t.number, int32(p)}); b[0].hash != one.hash || b[0].text != one.text {
			b[1], b[0] = b[0], one
		} else {
			b[0] = one
		}
	}
	return t.number
}

// text returns the text with a number; nil if it was overwritten.
func (x *Texts) text(number uint32) *indexed {
	if t := &x.texts[number%mostTexts]; number > 0 && t.number == number {
		return t
	}
	return nil
}

func (x *Texts) bucket(hash uint64) *[2]spotted {
	return &x.places[hash>>32&uint64(len(x.places)-1)]
}

// seed returns the seed of the hashes of a namespace.
func (x *Texts) seed(ns kv.Namespace) uint64 {
	if x.fault == planted.ForeignDraft {
		return 0
	}
	return ns.Seed()
}

// hashGram hashes the tokens of a gram.
func hashGram(seed uint64, tokens []kv.Token) uint64 {
	h := seed
	for _, t := range tokens[:gram] {
		h = (h ^ uint64(t)) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return h
}

// shares reports whether a sequence of a namespace may find a text.
func (x *Texts) shares(other *indexed, ns kv.Namespace) bool {
	return other.ns == ns || x.fault == planted.ForeignDraft
}

// tree guesses that a sequence goes on as a text of its namespace did after the same tokens.
type tree struct {
	texts   *Texts
	ns      kv.Namespace
	seed    uint64
	follows []kv.Token // read from the tree
	at      int        // index in follows of the token that is the guess
	length  int        // of the match before it; 0: no guess
	scratch []kv.Token
}

func newTree(texts *Texts, ns kv.Namespace) *tree {
	return &tree{texts: texts, ns: ns, seed: texts.seed(ns), follows: make([]kv.Token, 0, ahead), scratch: make([]kv.Token, 0, longest+ahead)}
}

func (t *tree) read(text []kv.Token) {
	t.length = 0
	t.find(text)
}

func (t *tree) take(text []kv.Token) (c class, right bool) {
	c, right = t.guess(), t.length > 0 && t.follows[t.at] == text[len(text)-1]
	if right {
		t.at++
		t.length = min(t.length+1, longest)
	} else {
		t.length = 0
	}
	if t.length < settled || len(t.follows)-t.at < ahead/2 {
		t.find(text)
	}
	if t.at == len(t.follows) {
		t.length = 0
	}
	return c, right
}

func (t *tree) guess() class {
	if t.length == 0 {
		return none
	}
	return ofLength(t.length, lone)
}

func (t *tree) draft(_ []kv.Token, most int, tokens []kv.Token, classes []class) ([]kv.Token, []class) {
	if t.length == 0 {
		return tokens, classes
	}
	for i, guess := range t.follows[t.at:min(t.at+most, len(t.follows))] {
		tokens, classes = append(tokens, guess), append(classes, ofLength(t.length+i, lone))
	}
	return tokens, classes
}

// find looks for matches of the last tokens of own, and follows one that is longer than the one that is
// followed, or as long with more tokens after it.
func (t *tree) find(own []kv.Token) {
	if len(own) < gram {
		return
	}
	h := hashGram(t.seed, own[len(own)-gram:])
	for _, s := range t.texts.bucket(h) {
		other, p := t.texts.text(s.text), int(s.at)
		if s.hash != uint32(h) || other == nil || p >= other.tokens || !t.texts.shares(other, t.ns) {
			continue
		}
		lo := max(p-longest, 0)
		read, ok := other.place.AppendText(t.texts.cache, lo, min(p+ahead, other.tokens), t.scratch[:0])
		if !ok {
			continue
		}
		if n := agree(read[:p-lo], own); n >= gram && (n > t.length || n == t.length && len(read)-(p-lo) > len(t.follows)-t.at) {
			t.length, t.at = n, 0
			t.follows = append(t.follows[:0], read[p-lo:]...)
		}
	}
}
