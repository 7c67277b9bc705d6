// Package trainer makes byte-level BPE tokenizers of a text, small ones for tests and demonstrations, in the form of a
// tokenizer.json. It never reads or writes a file and keeps nothing between calls. Its functions may be called from any
// goroutine.
//
//	file, err := trainer.Train(trainer.Config{VocabSize: 1024, Special: []string{"<|begin_of_text|>"}}, text)
//	if err != nil {
//		return err // says how many merges the text yields
//	}
//	t, err := tokenfile.Parse(file, nil)
package trainer

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/internal/heap"
	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer"
)

// Config configures Train.
type Config struct {
	VocabSize int      // all tokens: 256 bytes, the merges, the special tokens
	Special   []string // distinct; they get the highest ids, in this order, as in Llama 3
}

// maxVocab is the largest VocabSize that Train accepts: it is meant for small tokenizers,
// and the largest in use are of this order.
const maxVocab = 1 << 18

// Validate returns an error with the faults of the config, or nil.
func (c Config) Validate() error {
	if least := 256 + len(c.Special); c.VocabSize < least || c.VocabSize > maxVocab {
		return fmt.Errorf("trainer: VocabSize %d; want %d (256 bytes and %d special tokens) to %d",
			c.VocabSize, least, len(c.Special), maxVocab)
	}
	seen := map[string]bool{}
	for _, s := range c.Special {
		if s == "" || !utf8.ValidString(s) || seen[s] {
			return fmt.Errorf("trainer: Special %q is empty, no UTF-8 or there twice", s)
		}
		seen[s] = true
	}
	return nil
}

// Train makes a byte-level BPE tokenizer with the splitter of Llama 3 and returns it as a
// complete tokenizer.json, which Hugging Face's library can load, too. The same input gives the
// same bytes. The most frequent pair merges first; among equals the one with the lower left id,
// then the lower right id, so the merges are those of that library's BpeTrainer. If the first
// special token is "<|begin_of_text|>", it is added before prompts.
//
// It fails if the config is invalid or if corpus is too small to fill VocabSize. The corpus is
// plain text: special tokens in it are not recognised. A merge takes time proportional to the
// words that contain its pair: 150 KB and 1,000 merges take some ten milliseconds.
func Train(cfg Config, corpus string) ([]byte, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	tr, err := newTrainer(corpus)
	if err != nil {
		return nil, err
	}
	merges := cfg.VocabSize - 256 - len(cfg.Special)
	for n := range merges {
		if !tr.step() {
			return nil, fmt.Errorf("trainer: the corpus of %d bytes yields %d merges, VocabSize %d needs %d; give more text or lower VocabSize",
				len(corpus), n, cfg.VocabSize, merges)
		}
	}
	for _, s := range cfg.Special {
		if slices.Contains(tr.names, s) {
			return nil, fmt.Errorf("trainer: Special %q is an ordinary token too; choose another name", s)
		}
	}
	return writeFile(tr.names, tr.merges, cfg.Special)
}

// pair is two adjacent tokens, the left one in the high half.
type pair uint64

func pairOf(left, right kv.Token) pair { return pair(left)<<32 | pair(right) }

// counted is a pair and its number of occurrences when it was queued.
type counted struct {
	count int
	pair  pair
}

// Before orders by frequency, highest first, then by id, lowest first.
func (c counted) Before(d counted) bool {
	return c.count > d.count || c.count == d.count && c.pair < d.pair
}

// places forgets where the queue has an entry: entries leave it from the top only.
type places struct{}

func (places) Place(counted, int) {}

// word is a distinct piece of the corpus, in its current tokens.
type word struct {
	ids   []kv.Token
	count int
}

// trainer keeps for every pair its frequency and the words that contain it, so that a step only
// touches the words that contain the merged pair.
type trainer struct {
	names  []string // by id, over the alphabet
	merges [][2]kv.Token
	words  []word
	counts map[pair]int
	where  map[pair][]int             // ascending indexes into words, possibly repeated or outdated
	queue  heap.Heap[counted, places] // has for each pair an entry whose count is at least counts[pair]
	fresh  []pair                     // scratch of apply: pairs that became more frequent
}

func newTrainer(corpus string) (*trainer, error) {
	pieces, err := tokenizer.Pieces(tokenizer.PatternLlama3, corpus)
	if err != nil {
		return nil, err
	}
	tr := &trainer{counts: map[pair]int{}, where: map[pair][]int{}}
	byteID, index := tr.bytes(), map[string]int{}
	for _, piece := range pieces {
		at, ok := index[piece]
		if !ok {
			at = len(tr.words)
			index[piece] = at
			ids := make([]kv.Token, len(piece))
			for i := range ids {
				ids[i] = byteID[piece[i]]
			}
			tr.words = append(tr.words, word{ids: ids})
		}
		tr.words[at].count++
	}
	for at, w := range tr.words {
		for i := range len(w.ids) - 1 {
			tr.add(at, w.ids[i], w.ids[i+1])
		}
	}
	tr.enqueueFresh()
	return tr, nil
}

// bytes names the tokens of single bytes and returns their ids, which are in the order of the bytes' runes.
func (tr *trainer) bytes() (ids [256]kv.Token) {
	runes := tokenizer.ByteRunes()
	for id, r := range slices.Sorted(slices.Values(runes[:])) {
		ids[slices.Index(runes[:], r)] = kv.Token(id)
		tr.names = append(tr.names, string(r))
	}
	return ids
}

// add counts one occurrence of the pair left, right in words[at], as often as the corpus has that
// word.
func (tr *trainer) add(at int, left, right kv.Token) {
	p := pairOf(left, right)
	tr.counts[p] += tr.words[at].count
	tr.where[p] = append(tr.where[p], at)
	tr.fresh = append(tr.fresh, p)
}

// remove undoes one call of add, except that at stays in tr.where.
func (tr *trainer) remove(at int, left, right kv.Token) {
	tr.counts[pairOf(left, right)] -= tr.words[at].count
}

// enqueueFresh queues the pairs that became more frequent, each once.
func (tr *trainer) enqueueFresh() {
	slices.Sort(tr.fresh)
	for _, p := range slices.Compact(tr.fresh) {
		if n := tr.counts[p]; n > 0 {
			tr.queue.Push(places{}, counted{n, p})
		}
	}
	tr.fresh = tr.fresh[:0]
}

// step makes the next merge; it returns false if no pair is left.
func (tr *trainer) step() bool {
	for len(tr.queue.Items) > 0 {
		top := tr.queue.Remove(places{}, 0)
		n := tr.counts[top.pair]
		if n == top.count {
			tr.apply(top.pair)
			return true
		}
		if 0 < n && n < top.count { // outdated: it became rarer; a pair that became more frequent was queued again
			tr.queue.Push(places{}, counted{n, top.pair})
		}
	}
	return false
}

// apply merges p, whose count is positive, in all words.
func (tr *trainer) apply(p pair) {
	left, right := kv.Token(p>>32), kv.Token(p&0xFFFFFFFF)
	id := kv.Token(len(tr.names))
	name := tr.names[left] + tr.names[right]
	// No two merges produce the same name: as long as nothing merges across its ends, a
	// substring merges in the same way in every word.
	if invariants.Enabled && slices.Contains(tr.names, name) {
		panic("trainer: two merges make " + name)
	}
	tr.names = append(tr.names, name)
	tr.merges = append(tr.merges, [2]kv.Token{left, right})
	for _, at := range slices.Compact(tr.where[p]) {
		tr.mergeIn(at, left, right, id)
	}
	delete(tr.where, p)
	delete(tr.counts, p)
	tr.enqueueFresh()
}

// mergeIn replaces the tokens left, right by id in words[at], from left to right, and updates the
// counts of the neighbouring pairs.
func (tr *trainer) mergeIn(at int, left, right, id kv.Token) {
	ids := tr.words[at].ids
	out := ids[:0]
	for i := 0; i < len(ids); i++ {
		if i+1 == len(ids) || ids[i] != left || ids[i+1] != right {
			out = append(out, ids[i])
			continue
		}
		i++
		if n := len(out); n > 0 {
			tr.remove(at, out[n-1], left)
			tr.add(at, out[n-1], id)
		}
		if i+1 < len(ids) {
			tr.remove(at, right, ids[i+1])
			tr.add(at, id, ids[i+1])
		}
		out = append(out, id)
	}
	tr.words[at].ids = out
}
