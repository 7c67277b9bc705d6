package answer

import "testing"

// TestTokenizerInfo: special tokens are texts, as lm-eval's remote tokenizer expects, and a
// separate template file replaces the config's template.
func TestTokenizerInfo(t *testing.T) {
	config := `{"eos_token":{"content":"</s>","lstrip":false,"special":true},"bos_token":"<s>","pad_token":null,
		"added_tokens_decoder":{"2":{"content":"</s>","lstrip":false}},"chat_template":"old","model_max_length":1000000000000000019884624838656}`
	for _, tc := range []struct {
		config         []byte
		template, want string
	}{
		{nil, "", `{"tokenizer_class":"PreTrainedTokenizerFast"}`},
		{[]byte(config), "", `{"added_tokens_decoder":{"2":"\u003c/s\u003e"},"bos_token":"\u003cs\u003e","chat_template":"old","eos_token":"\u003c/s\u003e","model_max_length":1000000000000000019884624838656,"pad_token":null,"tokenizer_class":"PreTrainedTokenizerFast"}`},
		{[]byte(`{"tokenizer_class":"Qwen2Tokenizer","chat_template":"old"}`), "new", `{"chat_template":"new","tokenizer_class":"Qwen2Tokenizer"}`},
	} {
		got, err := TokenizerInfo(tc.config, tc.template)
		if err != nil || string(got) != tc.want {
			t.Errorf("%s, %v, want %s", got, err, tc.want)
		}
	}
	if _, err := TokenizerInfo([]byte(`[]`), ""); err == nil {
		t.Error("a list is no config")
	}
}
