package model

import (
	"strings"

	"github.com/coppice-llm/coppice/tokenizer"
)

// preTokenizer describes how a byte-level vocabulary splits text, under the name that
// llama.cpp's conversion script gives to it.
type preTokenizer struct {
	patterns     []string // regular expressions that split the text, applied in order; none: GPT-2's
	digits       bool     // split digits one by one before the patterns apply
	nfc          bool
	ignoreMerges bool
	addBOS       bool // default for files without add_bos_token
}

// preTokenizers are those of the supported architectures (names: llama.cpp, llama-vocab.cpp;
// steps: the models' own tokenizer.json).
var preTokenizers = map[string]preTokenizer{
	"gpt-2":            {},
	"smollm":           {digits: true},
	"starcoder":        {digits: true},
	"refact":           {digits: true},
	"llama-bpe":        {patterns: []string{tokenizer.PatternLlama3}, ignoreMerges: true, addBOS: true},
	"smaug-bpe":        {patterns: []string{tokenizer.PatternLlama3}},
	"qwen2":            {patterns: []string{tokenizer.PatternQwen2}, nfc: true},
	"deepseek-r1-qwen": {patterns: []string{tokenizer.PatternQwen2}, nfc: true},
	"tekken":           {patterns: []string{tokenizer.PatternTekken}, ignoreMerges: true, addBOS: true},
	"gpt-4o":           {patterns: []string{tokenizer.PatternO200k}},
	"llama4":           {patterns: []string{tokenizer.PatternO200k}},
	"deepseek-v3":      {patterns: tokenizer.PatternsDeepSeek3()},
}

// preAliases are other names of the same pre-tokenizers.
var preAliases = map[string]string{"llama3": "llama-bpe", "llama-v3": "llama-bpe", "dbrx": "smaug-bpe", "phi-2": "gpt-2", "olmo": "gpt-2", "mpt": "gpt-2"}

func (v *vocabulary) readPre() error {
	const key = wordKeys + "pre"
	name, ok := v.meta.String(key)
	if !ok {
		return unsupported("%s is %s: the file is too old to say how text is cut; convert the model again", key, v.meta.Text(key))
	}
	if alias, ok := preAliases[name]; ok {
		name = alias
	}
	if v.pre, ok = preTokenizers[name]; !ok {
		return unsupported("%s is %s; supported are %s", key, v.meta.Text(key), strings.Join(sortedKeys(preTokenizers), ", "))
	}
	v.addBOS = v.pre.addBOS
	return nil
}

// byteLevel adds the pipeline steps of byte-level BPE to tokenizer.json.
func (v *vocabulary) byteLevel(file object) {
	bytes := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": len(v.pre.patterns) == 0}
	var steps []object
	if v.pre.digits {
		steps = append(steps, object{"type": "Digits", "individual_digits": true})
	}
	for _, expr := range v.pre.patterns {
		steps = append(steps, object{"type": "Split", "pattern": object{"Regex": expr}, "behavior": "Isolated", "invert": false})
	}
	file["normalizer"] = nil
	if v.pre.nfc {
		file["normalizer"] = object{"type": "NFC"}
	}
	file["pre_tokenizer"] = object{"type": "Sequence", "pretokenizers": append(steps, bytes)}
	file["decoder"] = bytes
}
