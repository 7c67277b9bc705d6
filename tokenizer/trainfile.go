package tokenizer

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/coppice-llm/coppice/kv"
)

// beginOfText is Llama 3's BOS.
const beginOfText = "<|begin_of_text|>"

// writeFile returns tokenizer.json. names are the tokens over the alphabet by id; special
// tokens follow them. Merges are in the older form "a b", which every version of Hugging Face's
// library can read.
func writeFile(names []string, merges [][2]kv.Token, special []string) ([]byte, error) {
	lines := make([]string, len(merges))
	for i, m := range merges {
		lines[i] = names[m[0]] + " " + names[m[1]]
	}
	added := make([]map[string]any, len(special))
	for i, content := range special {
		added[i] = map[string]any{
			"id": len(names) + i, "content": content, "single_word": false,
			"lstrip": false, "rstrip": false, "normalized": false, "special": true,
		}
	}
	byteLevel := map[string]any{
		"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false,
	}
	file := map[string]any{
		"version":      "1.0",
		"truncation":   nil,
		"padding":      nil,
		"added_tokens": added,
		"normalizer":   nil,
		"pre_tokenizer": map[string]any{
			"type": "Sequence",
			"pretokenizers": []any{map[string]any{
				"type": "Split", "pattern": map[string]any{"Regex": PatternLlama3},
				"behavior": "Isolated", "invert": false,
			}, byteLevel},
		},
		"post_processor": templateFor(special, len(names)),
		"decoder": map[string]any{
			"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true,
		},
		"model": map[string]any{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil,
			"end_of_word_suffix": nil, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
			"vocab": orderedVocab(names), "merges": lines,
		},
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(file); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// templateFor returns a post_processor that puts beginOfText before a prompt, if beginOfText is
// the first of special; firstID is its id. Otherwise it returns nil.
func templateFor(special []string, firstID int) any {
	if len(special) == 0 || special[0] != beginOfText {
		return nil
	}
	bos := map[string]any{"SpecialToken": map[string]any{"id": beginOfText, "type_id": 0}}
	sequence := func(id string, typeID int) any {
		return map[string]any{"Sequence": map[string]any{"id": id, "type_id": typeID}}
	}
	return map[string]any{
		"type":   "TemplateProcessing",
		"single": []any{bos, sequence("A", 0)},
		"pair":   []any{bos, sequence("A", 0), bos, sequence("B", 1)},
		"special_tokens": map[string]any{beginOfText: map[string]any{
			"id": beginOfText, "ids": []int{firstID}, "tokens": []string{beginOfText},
		}},
	}
}

// orderedVocab marshals a vocabulary as an object in the order of ids; encoding/json would sort
// a map by name.
type orderedVocab []string

// MarshalJSON implements json.Marshaler.
func (v orderedVocab) MarshalJSON() ([]byte, error) {
	var out strings.Builder
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	out.WriteByte('{')
	for id, name := range v {
		if id > 0 {
			out.WriteByte(',')
		}
		if err := enc.Encode(name); err != nil {
			return nil, err
		}
		out.WriteByte(':')
		if err := enc.Encode(id); err != nil {
			return nil, err
		}
	}
	out.WriteByte('}')
	return []byte(out.String()), nil
}
