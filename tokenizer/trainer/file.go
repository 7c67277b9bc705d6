package trainer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/coppice-llm/coppice/internal/jsontext"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer"
)

// beginOfText is Llama 3's BOS.
const beginOfText = "<|begin_of_text|>"

// The parts of a trained tokenizer.json; for the verbs see writeFile.
const (
	fileFormat = `{"added_tokens": [%s],
"decoder": {"add_prefix_space": true, "trim_offsets": true, "type": "ByteLevel", "use_regex": true},
"model": {"byte_fallback": false, "continuing_subword_prefix": null, "dropout": null, "end_of_word_suffix": null,
	"fuse_unk": false, "ignore_merges": false, "merges": [%s], "type": "BPE", "unk_token": null, "vocab": {%s}},
"normalizer": null, "padding": null, "post_processor": %s,
"pre_tokenizer": {"pretokenizers": [
	{"behavior": "Isolated", "invert": false, "pattern": {"Regex": %s}, "type": "Split"},
	{"add_prefix_space": false, "trim_offsets": true, "type": "ByteLevel", "use_regex": false}], "type": "Sequence"},
"truncation": null, "version": "1.0"}
`
	addedFormat = `{"content": %s, "id": %d, "lstrip": false, "normalized": false, "rstrip": false, "single_word": false, "special": true}`

	// bosFormat puts beginOfText before a prompt.
	bosFormat = `{"pair": [{"SpecialToken": {"id": %[1]s, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
	{"SpecialToken": {"id": %[1]s, "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
"single": [{"SpecialToken": {"id": %[1]s, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
"special_tokens": {%[1]s: {"id": %[1]s, "ids": [%[2]d], "tokens": [%[1]s]}}, "type": "TemplateProcessing"}`
)

// writeFile returns tokenizer.json. names are the tokens over the alphabet by id; special
// tokens follow them. Merges are in the older form "a b", which every version of Hugging Face's
// library can read. If the first special token is beginOfText, it is put before prompts.
func writeFile(names []string, merges [][2]kv.Token, special []string) ([]byte, error) {
	var added, vocab, pairs []string
	post := "null"
	for i, content := range special {
		added = append(added, fmt.Sprintf(addedFormat, quoteJSON(content), len(names)+i))
	}
	if len(special) > 0 && special[0] == beginOfText {
		post = fmt.Sprintf(bosFormat, quoteJSON(beginOfText), len(names))
	}
	for id, name := range names {
		vocab = append(vocab, fmt.Sprintf("%s: %d", quoteJSON(name), id))
	}
	for _, m := range merges {
		pairs = append(pairs, quoteJSON(names[m[0]]+" "+names[m[1]]))
	}
	list := func(all []string) string { return strings.Join(all, ",") }
	var out bytes.Buffer
	err := json.Indent(&out, fmt.Appendf(nil, fileFormat, list(added), list(pairs), list(vocab), post, quoteJSON(tokenizer.PatternLlama3)), "", " ")
	return out.Bytes(), err
}

// quoteJSON returns s as a JSON string, without escapes for HTML.
func quoteJSON(s string) string { return string(jsontext.AppendString(nil, s)) }
