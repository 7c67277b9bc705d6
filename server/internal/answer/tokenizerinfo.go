package answer

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// TokenizerInfo makes the answer of /tokenizer_info in vLLM's form: the contents of
// tokenizer_config.json, with special tokens replaced by their texts, plus tokenizer_class and
// chat_template. config may be nil; a nonempty template replaces the one in config.
//
// Source: vllm/entrypoints/openai/serving_tokenization.py of vLLM, TokenizerInfo.
func TokenizerInfo(config []byte, template string) ([]byte, error) {
	info := map[string]any{}
	if config != nil {
		d := json.NewDecoder(bytes.NewReader(config))
		d.UseNumber() // model_max_length may be 1e30
		if err := d.Decode(&info); err != nil {
			return nil, fmt.Errorf("openai: tokenizer_config.json: %w", err)
		}
	}
	for name, v := range info {
		info[name] = plainTokens(v)
	}
	if _, ok := info["tokenizer_class"].(string); !ok {
		info["tokenizer_class"] = "PreTrainedTokenizerFast"
	}
	if template != "" {
		info["chat_template"] = template
	}
	return json.Marshal(info)
}

// plainTokens replaces each token object, {"content": "<s>", "lstrip": false, …}, anywhere in v
// by its text.
func plainTokens(v any) any {
	switch v := v.(type) {
	case map[string]any:
		text, ok := v["content"].(string)
		if _, flagged := v["lstrip"].(bool); ok && flagged {
			return text
		}
		for name, e := range v {
			v[name] = plainTokens(e)
		}
	case []any:
		for i, e := range v {
			v[i] = plainTokens(e)
		}
	}
	return v
}
