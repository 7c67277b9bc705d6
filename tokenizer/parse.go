package tokenizer

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/internal/bail"
	"github.com/coppice-llm/coppice/kv"
)

// Parse builds a Tokenizer from the contents of tokenizer.json and, unless nil, of its
// tokenizer_config.json, from which it reads bos_token, eos_token and add_bos_token. Errors
// wrap [ErrInvalid] or [ErrUnsupported]. forms are the normalization forms that the file may
// name: Parse of package tokenfile gives all. Cost: about a second for 100,000 merges.
func Parse(tokenizerJSON, configJSON []byte, forms Forms) (_ *Tokenizer, err error) {
	defer bail.Recover(&err)
	var f fileJSON
	if err := json.Unmarshal(tokenizerJSON, &f); err != nil {
		invalid("tokenizer.json is no complete tokenizer: %w", err)
	}
	t := &Tokenizer{raw: newMatcher(), normalized: newMatcher()}
	t.readPipeline(&f, forms)
	t.readVocab(f.Model.Vocab, f.AddedTokens)
	t.readSymbols(f.Model)
	t.readMerges(f.Model)
	t.findWhole(f.Model.Vocab, f.Model.IgnoreMerges)
	t.words = t.safeWords(f.Model)
	t.readAdded(f.AddedTokens)
	t.readDecoder(f.Decoder)
	t.readTemplate(f.PostProcessor)
	t.readConfig(configJSON)
	t.tokenBytes = t.longestToken()
	return t, nil
}

// readVocab fills t.text, t.special and t.known. An added token may also be in the vocabulary,
// with the same id. Some ids may have no token, as in cl100k: no text encodes to them, and they
// decode to nothing.
func (t *Tokenizer) readVocab(vocab vocabJSON, addedTokens []addedJSON) {
	sorted := slices.Sorted(maps.Keys(vocab)) // for the same error each time if there are several faults
	size := vocabSize(sorted, vocab, addedTokens)
	names := make([]string, size)
	t.known = make([]bool, size)
	for _, name := range sorted {
		id := vocab[name]
		if t.known[id] {
			invalid("tokens %q and %q share id %d", names[id], name, id)
		}
		names[id], t.known[id] = name, true
	}
	for _, a := range addedTokens {
		id, inVocab := vocab[a.Content]
		switch {
		case a.Content == "":
			invalid("added token %d has no content", a.ID)
		case inVocab && id != a.ID:
			invalid("added token %q has id %d, and %d in the vocabulary", a.Content, a.ID, id)
		case t.known[a.ID] && names[a.ID] != a.Content:
			invalid("tokens %q and %q share id %d", names[a.ID], a.Content, a.ID)
		}
		names[a.ID], t.known[a.ID] = a.Content, true
	}
	t.text = names
	t.special = make([]bool, size)
	if t.byteLevel {
		for id, name := range t.text {
			if s, ok := toBytes(name); ok {
				t.text[id] = s
			}
		}
	}
}

// maxHoles bounds how far an id may exceed the number of tokens. Models pad their vocabularies by
// some hundreds of ids; an id far beyond the tokens is an error in the file that must not take
// memory.
const maxHoles = 1 << 16

// vocabSize returns the highest id plus one. names are the names in vocab. It bails out if an id
// exceeds the number of tokens by maxHoles or more.
func vocabSize(names []string, vocab vocabJSON, addedTokens []addedJSON) (size int) {
	tokens := len(vocab) + len(addedTokens)
	check := func(name string, id kv.Token) {
		if int64(id) >= int64(tokens+maxHoles) {
			invalid("id %d of token %q leaves holes: at most %d ids beyond the %d tokens are supported", id, name, maxHoles, tokens)
		}
		size = max(size, int(id)+1)
	}
	for _, name := range names {
		check(name, vocab[name])
	}
	for _, a := range addedTokens {
		check(a.Content, a.ID)
	}
	return size
}

func (t *Tokenizer) readMerges(m *modelJSON) {
	t.merges = newMergeTable(len(m.Merges))
	t.longest = 1
	for name := range m.Vocab {
		t.longest = max(t.longest, utf8.RuneCountInString(name))
	}
	for rank, names := range m.Merges {
		if len(names) != 2 {
			invalid("merge %d has %d parts, want 2: %q", rank, len(names), names)
		}
		var ids [3]kv.Token
		for i, name := range []string{names[0], names[1], names[0] + names[1]} {
			id, ok := m.Vocab[name]
			if !ok {
				invalid("merge %d (%q) needs token %q, which the vocabulary lacks", rank, strings.Join(names, " "), name)
			}
			ids[i] = id
		}
		t.merges.put(pairOf(ids[0], ids[1]), merge{rank: uint32(rank), id: ids[2]})
	}
}

// findWhole fills t.whole with the tokens that are the encoding of a piece with the same bytes:
// all tokens with ignoreMerges, else those that merging produces.
func (t *Tokenizer) findWhole(vocab vocabJSON, ignoreMerges bool) {
	t.whole = make(map[string]kv.Token, len(vocab))
	var buf []kv.Token
	var s scratch
	for name, id := range vocab {
		piece := name
		if t.byteLevel {
			var ok bool
			if piece, ok = toBytes(name); !ok {
				continue
			}
		}
		if piece == "" {
			continue
		}
		if !ignoreMerges {
			buf = t.merge(buf[:0], piece, &s)
			if len(buf) != 1 || buf[0] != id {
				continue
			}
		}
		t.whole[piece] = id
	}
}

// readAdded adds the added tokens to the matchers. Their text is their content, without the
// byte alphabet; tokens matched in normalized text have the normalized content, as in the
// library.
func (t *Tokenizer) readAdded(tokens []addedJSON) {
	t.added = make(map[string]kv.Token, len(tokens))
	for _, j := range tokens {
		a := added{j.Content, j.ID, j.LStrip, j.RStrip, j.SingleWord, j.Special}
		t.added[j.Content] = j.ID
		t.special[j.ID] = j.Special
		t.text[j.ID] = j.Content
		if !j.Normalized {
			t.raw.add(a)
			continue
		}
		if a.content = t.normalize(a.content, &scratch{}); a.content != "" {
			t.normalized.add(a)
			t.text[j.ID] = a.content
		}
	}
}
