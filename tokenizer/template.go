package tokenizer

import (
	"encoding/json"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// readTemplate reads from the post-processor the tokens around a prompt. A ByteLevel
// post-processor only trims offsets, which Coppice does not use.
func (t *Tokenizer) readTemplate(p *partJSON) {
	for _, p := range p.steps("post_processor", 0) {
		switch p.Type {
		case "ByteLevel":
		case "TemplateProcessing":
			t.readSingle(p)
		default:
			unsupported("post_processor %q; supported are TemplateProcessing and ByteLevel", p.Type)
		}
	}
}

// readSingle reads the template for one text. It adds the template's tokens before t.prefix and
// after t.suffix, so they enclose those of earlier processors.
func (t *Tokenizer) readSingle(p *partJSON) {
	seen := false
	var before, after []kv.Token
	for _, item := range p.Single {
		switch {
		case item.Sequence != nil && !seen:
			seen = true
		case item.SpecialToken != nil:
			special, ok := p.SpecialTokens[item.SpecialToken.ID]
			if !ok {
				invalid("the post_processor's template uses %q, which its special_tokens lack", item.SpecialToken.ID)
			}
			for _, id := range special.IDs {
				if !t.Known(id) {
					invalid("the post_processor's %q has id %d, which the vocabulary lacks", item.SpecialToken.ID, id)
				}
			}
			if seen {
				after = append(after, special.IDs...)
			} else {
				before = append(before, special.IDs...)
			}
		default:
			invalid("the post_processor's template is not special tokens and one sequence")
		}
	}
	if !seen {
		invalid("the post_processor's template has no sequence")
	}
	t.prefix, t.suffix = append(before, t.prefix...), append(t.suffix, after...)
}

// configJSON is the used part of tokenizer_config.json.
type configJSON struct {
	BOS    nameJSON `json:"bos_token"`
	EOS    nameJSON `json:"eos_token"`
	AddBOS bool     `json:"add_bos_token"`
}

// nameJSON is a token's content, given as a string or in an object; "" for null.
type nameJSON string

// UnmarshalJSON implements json.Unmarshaler.
func (n *nameJSON) UnmarshalJSON(data []byte) error {
	if data[0] != '{' {
		return json.Unmarshal(data, (*string)(n))
	}
	var object struct{ Content string }
	err := json.Unmarshal(data, &object)
	*n = nameJSON(object.Content)
	return err
}

// endNames are the special tokens that end a turn or a text in the supported families (Llama 3;
// Qwen; GPT-2 and Qwen; Mistral; gpt-oss), for files without a config. The <|end|> of gpt-oss is not
// among them: it ends a message, and other messages of the same output may follow.
var endNames = []string{"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|im_end|>", "<|endoftext|>", "</s>", "<|return|>", "<|call|>"}

// readConfig sets BOS and EOS from data, the contents of tokenizer_config.json, and the prefix if
// add_bos_token is set. data may be nil; then BOS is the first token of the prefix, and EOS the
// tokens of endNames that the file has.
func (t *Tokenizer) readConfig(data []byte) {
	var c configJSON
	if data != nil {
		if err := json.Unmarshal(data, &c); err != nil {
			invalid("tokenizer_config.json: %w", err)
		}
	}
	if len(t.prefix) > 0 {
		t.bos, t.hasBOS = t.prefix[0], true
	}
	if c.BOS != "" {
		t.bos, t.hasBOS = t.named("bos_token", string(c.BOS)), true
	}
	if c.AddBOS && len(t.prefix) == 0 {
		if !t.hasBOS {
			invalid("tokenizer_config.json: add_bos_token is set, but no bos_token")
		}
		t.prefix = []kv.Token{t.bos}
	}
	if c.EOS != "" {
		t.eos = []kv.Token{t.named("eos_token", string(c.EOS))}
		return
	}
	for _, name := range endNames {
		if id, ok := t.AddedToken(name); ok && t.special[id] {
			t.eos = append(t.eos, id)
		}
	}
}

// named finds a token of tokenizer_config.json by its content, added tokens first.
func (t *Tokenizer) named(name, content string) kv.Token {
	if id, ok := t.AddedToken(content); ok {
		return id
	}
	id := slices.Index(t.text, content)
	if id < 0 {
		invalid("tokenizer_config.json: %s %q is not in the vocabulary", name, content)
	}
	return kv.Token(id)
}
