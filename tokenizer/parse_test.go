package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// edit returns the trained file with some values replaced. A key is a path of field names
// joined by dots.
func edit(t testing.TB, changes map[string]string) []byte {
	t.Helper()
	data, err := os.ReadFile(trainedFile)
	if err != nil {
		t.Fatal(err)
	}
	file := map[string]any{}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	for path, value := range changes {
		at, keys := file, strings.Split(path, ".")
		for _, key := range keys[:len(keys)-1] {
			at = at[key].(map[string]any)
		}
		if last := keys[len(keys)-1]; value == "" {
			delete(at, last)
		} else {
			at[last] = json.RawMessage(value)
		}
	}
	data, err = json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func trained(t testing.TB) *Tokenizer {
	t.Helper()
	tok, err := open(trainedFile)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// splitJSON returns a Sequence of a Split, with the fields pattern and rest, and of byteLevel.
func splitJSON(pattern, rest, byteLevel string) string {
	return `{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":` + pattern + `,` + rest + `},` + byteLevel + `]}`
}

const (
	plainByteLevel = `{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}`
	isolatedSplit  = `"behavior":"Isolated","invert":false`
)

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// Every unsupported feature is refused by an error that names it.
func TestUnsupportedFeaturesAreRefusedByName(t *testing.T) {
	for _, tc := range []struct{ path, value, want string }{
		{"model.type", `"WordPiece"`, `model type "WordPiece"`},
		{"model.type", `"WordLevel"`, `model type "WordLevel"`},
		{"model", `{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0.0],["a",-1.5]]}`, `model type "Unigram"`},
		{"model.dropout", `0.1`, "dropout 0.1"},
		{"model.continuing_subword_prefix", `"##"`, `continuing_subword_prefix "##"`},
		{"model.end_of_word_suffix", `"</w>"`, `end_of_word_suffix "</w>"`},
		{"normalizer", `{"type":"BertNormalizer"}`, `normalizer "BertNormalizer"`},
		{"normalizer", `{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Precompiled","precompiled_charsmap":"AA=="}]}`, `normalizer "Precompiled"`},
		{"normalizer", `{"type":"Replace","pattern":{"Regex":"\\bx"},"content":""}`, `the escape \b`},
		{"pre_tokenizer", `null`, `decoder "ByteLevel"`},
		{"pre_tokenizer", `{"type":"Whitespace"}`, `pre_tokenizer "Whitespace"`},
		{"pre_tokenizer", `{"type":"Sequence","pretokenizers":[` + plainByteLevel + `,{"type":"Digits"}]}`, `pre_tokenizer "Digits" after ByteLevel`},
		{"pre_tokenizer", `{"type":"Sequence","pretokenizers":[` + plainByteLevel + `,` + plainByteLevel + `]}`, `pre_tokenizer "ByteLevel" after ByteLevel`},
		{"pre_tokenizer", `{"type":"Metaspace","prepend_scheme":"sometimes"}`, `prepend_scheme "sometimes"`},
		{"pre_tokenizer", splitJSON(`{"Regex":"(a+)+b"}`, isolatedSplit, plainByteLevel), "a repetition of a group"},
		{"pre_tokenizer", splitJSON(`{"Regex":"a++"}`, isolatedSplit, plainByteLevel), "possessive"},
		{"pre_tokenizer", splitJSON(`{"Regex":"[a[b]]"}`, isolatedSplit, plainByteLevel), "a set in a set"},
		{"pre_tokenizer", splitJSON(`{"Regex":"[a-z&&[^b]]"}`, isolatedSplit, plainByteLevel), "an intersection"},
		{"pre_tokenizer", splitJSON(`{"Regex":"(?<n>a)"}`, isolatedSplit, plainByteLevel), "the group (?<n"},
		{"pre_tokenizer", splitJSON(`{"Regex":"a|(b"}`, isolatedSplit, plainByteLevel), "a group without an end"},
		{"pre_tokenizer", splitJSON(`{"Regex":"\\w+"}`, isolatedSplit, plainByteLevel), `the escape \w`},
		{"pre_tokenizer", splitJSON(`{"Regex":"x"}`, `"behavior":"Sideways","invert":false`, plainByteLevel), `behavior "Sideways"`},

		{"post_processor", `{"type":"BertProcessing","sep":["[SEP]",1],"cls":["[CLS]",0]}`, `post_processor "BertProcessing"`},
		{"decoder", `null`, "decoder null"},
		{"decoder", `{"type":"Metaspace"}`, `decoder "Metaspace"`},
		{"decoder", `{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"}]}`, `decoder "Sequence"`},
		{"decoder", `{"type":"WordPiece"}`, `decoder "WordPiece"`},
		{"model", `{"type":"BPE","byte_fallback":true,"vocab":{"a":0,"b":1,"ab":2,"<0xC4>":3,"<0xC2>":4},"merges":["a b"]}`, "byte 0x00"},
	} {
		data := edit(t, map[string]string{tc.path: tc.value})
		if strings.Contains(tc.want, "byte 0x") {
			data = edit(t, map[string]string{tc.path: tc.value, "added_tokens": `[]`, "post_processor": `null`})
		}
		_, err := parse(data, nil)
		if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s = %s: error %v, want one that names %s", tc.path, tc.value, err, tc.want)
		} else if !strings.Contains(err.Error(), "supported is") && !strings.Contains(err.Error(), "supported are") {
			t.Errorf("%s = %s: %v does not say what is supported", tc.path, tc.value, err)
		}
	}
}

func TestEquivalentForms(t *testing.T) {
	plain := trained(t)
	const text = "We'll see 12345 ships:\n\n\tnow <|eot_id|> and then"
	want := plain.Encode(nil, text)
	for name, changes := range map[string]map[string]string{
		"no model type":      {"model.type": ""},
		"removed and invert": {"pre_tokenizer": splitJSON(`{"Regex":`+quoted(PatternLlama3)+`}`, `"behavior":"Removed","invert":true`, plainByteLevel)},
		"empty normalizer":   {"normalizer": `{"type":"Sequence","normalizers":[]}`},
		"decoder sequence":   {"decoder": `{"type":"Sequence","decoders":[{"type":"ByteLevel"}]}`},
		"unk_token":          {"model.unk_token": `"<|end_of_text|>"`},
		"dropout 0":          {"model.dropout": `0.0`},
		"truncation":         {"truncation": `{"max_length":3}`, "padding": `{"strategy":"BatchLongest"}`},
	} {
		tok, err := parse(edit(t, changes), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := tok.Encode(nil, text); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestInvalidFiles(t *testing.T) {
	const added = `{"id":%,"content":"<x>","special":true}`
	for _, tc := range []struct {
		changes map[string]string
		want    string
	}{
		{map[string]string{"model": ""}, "no model"},
		{map[string]string{"model.vocab": ""}, "no vocab"},
		{map[string]string{"model.merges": ""}, "no vocab or no merges"},
		{map[string]string{"model.vocab.th": `4000000000`}, "leaves holes"},
		{map[string]string{"model.vocab.zz": strconv.Itoa(1501 + maxHoles)}, "leaves holes"},
		{map[string]string{"model.vocab.Ā": "", "model.unk_token": `"<unk>"`}, `unk_token "<unk>"`},
		{map[string]string{"model.vocab.zz": `17`}, "share id 17"},
		{map[string]string{"model.vocab.zz": `-1`}, "vocab"},
		{map[string]string{"model.vocab.zz": `1.5`}, "vocab"},
		{map[string]string{"model.merges": `["t h", "q z"]`}, `needs token "qz"`},
		{map[string]string{"model.merges": `["t h", "th"]`}, "merge 1 has 1 parts"},
		{map[string]string{"model.merges": `[["t","h"], ["t","h","e"]]`}, "merge 1 has 3 parts"},
		{map[string]string{"model.merges": `[1, 2]`}, "merges"},
		{map[string]string{"added_tokens": `[` + strings.ReplaceAll(added, "%", "5") + `]`}, "share id 5"},
		{map[string]string{"added_tokens": `[` + strings.ReplaceAll(added, "%", strconv.Itoa(1497+maxHoles)) + `]`}, "leaves holes"},
		{map[string]string{"added_tokens": `[` + strings.ReplaceAll(added, "%", "1600") + `]`}, "id 1496, which the vocabulary lacks"},
		{map[string]string{"added_tokens": `[{"id":1496,"content":""}]`}, "no content"},
		{map[string]string{"added_tokens": `[{"id":1496,"content":"th"}]`}, `added token "th"`},
		{map[string]string{"post_processor": `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"special_tokens":{}}`}, `"<s>"`},
		{map[string]string{"post_processor": `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}}],"special_tokens":{"<s>":{"ids":[1]}}}`}, "no sequence"},
		{map[string]string{"post_processor": `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}}],"special_tokens":{"<s>":{"ids":[1500]}}}`}, "id 1500"},
		{map[string]string{"post_processor": `{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A"}},{"Sequence":{"id":"A"}}]}`}, "one sequence"},
	} {
		_, err := parse(edit(t, tc.changes), nil)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: error %v, want one with %q", tc.changes, err, tc.want)
		}
	}
}

func TestTruncatedFile(t *testing.T) {
	data, err := os.ReadFile(trainedFile)
	if err != nil {
		t.Fatal(err)
	}
	data = []byte(strings.TrimSpace(string(data)))
	for _, n := range []int{0, 1, 100, len(data) / 2, len(data) - 1} {
		if _, err := parse(data[:n], nil); !errors.Is(err, ErrInvalid) {
			t.Errorf("%d of %d bytes: %v", n, len(data), err)
		}
	}
	if _, err := parse(data, []byte(`{"bos_token":`)); !errors.Is(err, ErrInvalid) {
		t.Errorf("truncated config: %v", err)
	}
}

func TestBOSAndEOS(t *testing.T) {
	noTemplate := map[string]string{"post_processor": `null`}
	suffix := map[string]string{"post_processor": `{"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing",
		"single":[{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"<|eot|>","type_id":0}}],"special_tokens":{"<|eot|>":{"id":"<|eot|>","ids":[1499]}}}]}`}
	for _, tc := range []struct {
		name    string
		changes map[string]string
		config  string
		prompt  []kv.Token // the prompt of "a", whose token is 64
		bos     int
		eos     []kv.Token
	}{
		{"template", nil, ``, []kv.Token{1496, 64}, 1496, []kv.Token{1498, 1497}},
		{"template and config", nil, `{"bos_token":"<|begin_of_text|>","eos_token":"<|eot_id|>"}`, []kv.Token{1496, 64}, 1496, []kv.Token{1498}},
		{"template and add_bos_token", nil, `{"bos_token":"<|begin_of_text|>","add_bos_token":true}`, []kv.Token{1496, 64}, 1496, []kv.Token{1498, 1497}},
		{"neither", noTemplate, ``, []kv.Token{64}, -1, []kv.Token{1498, 1497}},
		{"bos, but not added", noTemplate, `{"bos_token":"<|end_of_text|>","eos_token":"<|end_of_text|>"}`, []kv.Token{64}, 1497, []kv.Token{1497}},
		{"add_bos_token", noTemplate, `{"bos_token":{"content":"<|eot|>"},"add_bos_token":true}`, []kv.Token{1499, 64}, 1499, []kv.Token{1498, 1497}},
		{"bos from the vocabulary", noTemplate, `{"bos_token":"th"}`, []kv.Token{64}, -2, []kv.Token{1498, 1497}},
		{"suffix", suffix, ``, []kv.Token{64, 1499}, -1, []kv.Token{1498, 1497}},
	} {
		var config []byte
		if tc.config != "" {
			config = []byte(tc.config)
		}
		tok, err := parse(edit(t, tc.changes), config)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if got := tok.EncodePrompt(nil, "a"); !slices.Equal(got, tc.prompt) {
			t.Errorf("%s: prompt %v, want %v", tc.name, got, tc.prompt)
		}
		bos, ok := tok.BOS()
		switch {
		case tc.bos == -2 && string(tok.Decode(nil, []kv.Token{bos}, false)) != "th",
			tc.bos == -1 && ok, tc.bos >= 0 && (!ok || int(bos) != tc.bos):
			t.Errorf("%s: BOS %d %v, want %d", tc.name, bos, ok, tc.bos)
		}
		if got := tok.EOS(); !slices.Equal(got, tc.eos) {
			t.Errorf("%s: EOS %v, want %v", tc.name, got, tc.eos)
		}
	}
	for _, config := range []string{`{"bos_token":"<s>"}`, `{"eos_token":"</s>"}`, `{"add_bos_token":true}`} {
		if _, err := parse(edit(t, noTemplate), []byte(config)); !errors.Is(err, ErrInvalid) {
			t.Errorf("config %s: %v", config, err)
		}
	}
}

// TestEndsOfHarmony: gpt-oss ends an output by <|return|> or <|call|>. The <|end|> of a message does not.
func TestEndsOfHarmony(t *testing.T) {
	added := ""
	for i, name := range []string{"<|endoftext|>", "<|return|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>"} {
		added += fmt.Sprintf(`,{"id":%d,"content":%q,"special":true}`, 1496+i, name)
	}
	tok, err := parse(edit(t, map[string]string{"added_tokens": "[" + added[1:] + "]", "post_processor": "null"}), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := tok.EOS(); !slices.Equal(got, []kv.Token{1496, 1497, 1501}) {
		t.Errorf("EOS %v", got)
	}
}

func TestAddedTokensAreFound(t *testing.T) {
	tok := trained(t)
	if tok.VocabSize() != 1500 {
		t.Errorf("vocab size %d", tok.VocabSize())
	}
	for i, name := range trainedSpecial {
		id, ok := tok.AddedToken(name)
		if !ok || int(id) != 1496+i || !tok.Special(id) {
			t.Errorf("%s: %d %v, special %v", name, id, ok, tok.Special(id))
		}
	}
	for _, name := range []string{"", "th", "<|eot", "<|eot|>x"} {
		if id, ok := tok.AddedToken(name); ok {
			t.Errorf("%q is added token %d", name, id)
		}
	}
	if tok.Special(0) || tok.Special(1500) || tok.Special(1<<32-1) {
		t.Error("ordinary or unknown tokens are special")
	}
}
