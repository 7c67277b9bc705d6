package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/kv"
)

// Words holds Hugging Face's files for a model's tokens and chats, by name: tokenizer.json and
// tokenizer_config.json.
type Words map[string][]byte

// GGUFWords makes the Words of the GGUF file at path from its metadata. Errors are as those of
// Open.
func GGUFWords(path string) (Words, error) {
	w, meta, err := mapGGUF(path)
	if err != nil {
		return nil, err
	}
	defer w.close()
	v, err := readVocabulary(meta)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return v.files()
}

// Token types, with llama.cpp's numbers.
const (
	tokenNormal  = 1
	tokenUnknown = 2
	tokenControl = 3
	tokenUser    = 4
	tokenUnused  = 5
	tokenByte    = 6
)

const wordKeys = "tokenizer.ggml."

// vocabulary is the tokenizer part of a file's metadata.
type vocabulary struct {
	meta   *gguf.Meta
	pieces bool // tokens are SentencePiece's pieces; else byte-level
	pre    preTokenizer
	tokens []string
	kinds  []uint64
	merges []string  // of a byte-level vocabulary
	scores []float64 // of a SentencePiece vocabulary

	bos, eos []kv.Token
	addBOS   bool
	addEOS   bool // a text ends with eos[0], as those of some embedding models
}

// readVocabulary reads and checks the metadata of the tokenizer.
func readVocabulary(meta *gguf.Meta) (*vocabulary, error) {
	v := &vocabulary{meta: meta}
	model, _ := meta.String(wordKeys + "model")
	switch model {
	case "gpt2":
		if err := v.readPre(); err != nil {
			return nil, err
		}
	case "llama":
		v.pieces, v.addBOS = true, true
	default:
		return nil, unsupported("%smodel is %s; supported are \"gpt2\" and \"llama\"", wordKeys, meta.Text(wordKeys+"model"))
	}
	var ok bool
	if v.tokens, ok = meta.Strings(wordKeys + "tokens"); !ok || len(v.tokens) == 0 || len(v.tokens) > maxCount {
		return nil, damaged("%stokens is %s, want up to %d texts", wordKeys, meta.Text(wordKeys+"tokens"), maxCount)
	}
	if v.kinds, ok = meta.Uints(wordKeys + "token_type"); !ok || len(v.kinds) != len(v.tokens) {
		return nil, damaged("%stoken_type is %s, want %d numbers, one for each token", wordKeys, meta.Text(wordKeys+"token_type"), len(v.tokens))
	}
	if v.pieces {
		if v.scores, ok = meta.Floats(wordKeys + "scores"); !ok || len(v.scores) != len(v.tokens) {
			return nil, damaged("%sscores is %s, want %d numbers, one for each token", wordKeys, meta.Text(wordKeys+"scores"), len(v.tokens))
		}
	} else if v.merges, ok = meta.Strings(wordKeys + "merges"); !ok {
		return nil, damaged("%smerges is %s, want texts", wordKeys, meta.Text(wordKeys+"merges"))
	}
	if add, there := meta.Bool(wordKeys + "add_bos_token"); there {
		v.addBOS = add
	}
	v.addEOS, _ = meta.Bool(wordKeys + "add_eos_token")
	return v, v.readSpecial()
}

// endNames are control tokens that end a text or a turn whatever the metadata say, as in
// llama.cpp.
var endNames = []string{"<|eot_id|>", "<|im_end|>", endOfMessage, "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", "</s>", "<|end_of_turn|>", "<|return|>", "<|call|>"}

// endOfMessage ends a turn, as in Phi 3, unless the vocabulary also has <|return|> and <|call|>, as
// that of gpt-oss: it then ends a message, and other messages of the same output may follow.
//
// Source: OpenAI's page on the Harmony response format; src/llama-vocab.cpp of llama.cpp.
const endOfMessage = "<|end|>"

// readSpecial finds the tokens that begin and end texts.
func (v *vocabulary) readSpecial() error {
	id := func(name string) (kv.Token, bool, error) {
		key := wordKeys + name
		n, ok := v.meta.Uint(key)
		if v.meta.Has(key) && (!ok || n >= uint64(len(v.tokens))) {
			return 0, false, damaged("%s is %s, outside the vocabulary of %d tokens", key, v.meta.Text(key), len(v.tokens))
		}
		return kv.Token(n), ok, nil
	}
	bos, ok, err := id("bos_token_id")
	if err != nil {
		return err
	}
	if ok {
		v.bos = []kv.Token{bos}
	} else if v.addBOS {
		return damaged("%sadd_bos_token is set, but no bos_token_id", wordKeys)
	}
	for _, name := range []string{"eos_token_id", "eot_token_id", "eom_token_id"} {
		end, ok, err := id(name)
		if err != nil {
			return err
		}
		if ok && !slices.Contains(v.eos, end) {
			v.eos = append(v.eos, end)
		}
		if name == "eos_token_id" && v.addEOS && !ok {
			return damaged("%sadd_eos_token is set, but no eos_token_id", wordKeys)
		}
	}
	for i, kind := range v.kinds {
		if t := kv.Token(i); kind == tokenControl && slices.Contains(endNames, v.tokens[i]) && !slices.Contains(v.eos, t) {
			v.eos = append(v.eos, t)
		}
	}
	if slices.Contains(v.tokens, "<|return|>") && slices.Contains(v.tokens, "<|call|>") {
		v.eos = slices.DeleteFunc(v.eos, func(t kv.Token) bool { return v.tokens[t] == endOfMessage })
	}
	return nil
}

// files makes tokenizer.json and tokenizer_config.json.
func (v *vocabulary) files() (Words, error) {
	vocab, addedTokens := make(map[string]int, len(v.tokens)), []object{}
	unknown := ""
	for id, token := range v.tokens {
		switch v.kinds[id] {
		case tokenControl, tokenUser:
			if token == "" {
				return nil, damaged("token %d of %stokens is empty", id, wordKeys)
			}
			addedTokens = append(addedTokens, added(id, token, v.kinds[id] == tokenControl))
			continue
		case tokenUnused:
			continue // an id without a token
		case tokenUnknown:
			if token != "" {
				unknown = token
				addedTokens = append(addedTokens, added(id, token, true))
			}
		}
		if _, twice := vocab[token]; !twice {
			vocab[token] = id // a repeated text keeps its first id; the second id has no token
		}
	}
	file := object{"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": addedTokens, "post_processor": nil}
	if v.addEOS {
		file["post_processor"] = v.ending()
	}
	model := object{"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
		"fuse_unk": v.pieces, "byte_fallback": v.pieces, "ignore_merges": v.pre.ignoreMerges, "vocab": vocab}
	if v.pieces {
		v.sentencePiece(file)
		merges, err := v.pieceMerges(vocab)
		if err != nil {
			return nil, err
		}
		model["merges"] = merges
		if unknown != "" {
			model["unk_token"] = unknown
		}
	} else {
		v.byteLevel(file)
		model["merges"] = v.merges
	}
	file["model"] = model
	return v.marshal(file)
}

// ending returns the step that appends the end-of-text token to a text.
func (v *vocabulary) ending() object {
	end := v.tokens[v.eos[0]]
	text := func(id string) object { return object{"Sequence": object{"id": id, "type_id": 0}} }
	special := object{"SpecialToken": object{"id": end, "type_id": 0}}
	return object{
		"type": "TemplateProcessing", "single": []object{text("A"), special}, "pair": []object{text("A"), special, text("B"), special},
		"special_tokens": object{end: object{"id": end, "ids": []kv.Token{v.eos[0]}, "tokens": []string{end}}},
	}
}

func added(id int, content string, special bool) object {
	return object{"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": special}
}

// object is a JSON object.
type object map[string]any

func (v *vocabulary) marshal(file object) (Words, error) {
	config := object{"add_bos_token": v.addBOS, "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false}
	for name, key := range map[string]string{"bos_token": "bos_token_id", "eos_token": "eos_token_id", "unk_token": "unknown_token_id", "pad_token": "padding_token_id"} {
		if id, ok := v.meta.Uint(wordKeys + key); ok && id < uint64(len(v.tokens)) && v.tokens[id] != "" {
			config[name] = v.tokens[id]
		}
	}
	template, named := v.templates()
	if template != "" && len(named) == 0 {
		config["chat_template"] = template
	} else if len(named) > 0 {
		if template != "" {
			named = append([]object{{"name": "default", "template": template}}, named...)
		}
		config["chat_template"] = named
	}
	words := Words{}
	for name, content := range map[string]object{"tokenizer.json": file, "tokenizer_config.json": config} {
		data, err := json.Marshal(content)
		if err != nil {
			return nil, damaged("the tokenizer: %v", err)
		}
		words[name] = data
	}
	return words, nil
}

const templateKey = "tokenizer.chat_template"

// templates returns the default chat template and those with a name.
func (v *vocabulary) templates() (template string, named []object) {
	template, _ = v.meta.String(templateKey)
	for _, key := range v.meta.Keys() {
		if name, ok := strings.CutPrefix(key, templateKey+"."); ok {
			if text, ok := v.meta.String(key); ok {
				named = append(named, object{"name": name, "template": text})
			}
		}
	}
	return template, named
}

// sentencePiece adds the pipeline steps of SentencePiece's BPE, as Hugging Face converts them.
func (v *vocabulary) sentencePiece(file object) {
	const space = "▁"
	replace := func(from, to string) object {
		return object{"type": "Replace", "pattern": object{"String": from}, "content": to}
	}
	normalizers := []object{replace(" ", space)}
	decoders := []object{replace(space, " "), {"type": "ByteFallback"}, {"type": "Fuse"}}
	if add, there := v.meta.Bool(wordKeys + "add_space_prefix"); add || !there {
		normalizers = append([]object{{"type": "Prepend", "prepend": space}}, normalizers...)
		decoders = append(decoders, object{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	}
	file["normalizer"] = object{"type": "Sequence", "normalizers": normalizers}
	file["pre_tokenizer"] = nil
	file["decoder"] = object{"type": "Sequence", "decoders": decoders}
}

// pieceMerge is two pieces that merge into a third, and the score of the third.
type pieceMerge struct {
	left, right string
	score       float64
}

// maxMergeRatio bounds the bytes of a vocabulary's merges per byte of its pieces. Published
// vocabularies have 2 to 4; one of "a", "aa", "aaa" and so on has hundreds, and would take far
// more memory than its file.
const maxMergeRatio = 16

// pieceMerges returns the merges that the scores imply: every pair of pieces that together are a
// piece, the pair of the highest score first (transformers, convert_slow_tokenizer.py,
// generate_merges). vocab has the id of each piece. It fails if the merges take more memory than
// maxMergeRatio allows.
func (v *vocabulary) pieceMerges(vocab map[string]int) ([][2]string, error) {
	var all []pieceMerge
	mergeBytes, most := 0, 1<<16
	for _, piece := range v.tokens {
		most += maxMergeRatio * len(piece)
	}
	for id, piece := range v.tokens {
		if v.kinds[id] != tokenNormal || vocab[piece] != id {
			continue
		}
		from := len(all)
		for i, r := range piece {
			if i == 0 || r == utf8.RuneError && !utf8.FullRuneInString(piece[i:]) {
				continue
			}
			_, left := vocab[piece[:i]]
			_, right := vocab[piece[i:]]
			if left && right {
				if mergeBytes += len(piece); mergeBytes > most {
					return nil, damaged("%stokens are made of each other in too many ways, by merges of over %d bytes", wordKeys, most)
				}
				all = append(all, pieceMerge{piece[:i], piece[i:], v.scores[id]})
			}
		}
		slices.SortStableFunc(all[from:], func(a, b pieceMerge) int {
			return cmp.Or(cmp.Compare(vocab[a.left], vocab[b.left]), cmp.Compare(vocab[a.right], vocab[b.right]))
		})
	}
	slices.SortStableFunc(all, func(a, b pieceMerge) int {
		return cmp.Or(cmp.Compare(b.score, a.score),
			cmp.Compare(utf8.RuneCountInString(b.left), utf8.RuneCountInString(a.left)),
			cmp.Compare(utf8.RuneCountInString(b.right), utf8.RuneCountInString(a.right)))
	})
	merges := make([][2]string, len(all))
	for i, m := range all {
		merges[i] = [2]string{m.left, m.right}
	}
	return merges, nil
}
