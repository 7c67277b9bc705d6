package answer

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// TokenizerInfo makes the answer of /tokenizer_info, as vLLM gives it: what
// tokenizer_config.json holds, with special tokens as their texts, and with
// tokenizer_class and chat_template. config may be nil; template, if not empty, takes the
// place of the config's own.
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

// plainTokens puts the text of a token, {"content": "<s>", "special": true, …}, in its
// place, wherever there is one in v.
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
