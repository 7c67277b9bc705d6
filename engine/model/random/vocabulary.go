package random

import (
	"fmt"
	"strings"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/internal/opticks"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer/tokenfile"
	"github.com/coppice-llm/coppice/tokenizer/trainer"
)

// The special tokens of a generated model, named as in Llama 3, so that its chat format
// applies.
const (
	beginOfText = "<|begin_of_text|>"
	endOfText   = "<|end_of_text|>"
	startHeader = "<|start_header_id|>"
	endHeader   = "<|end_header_id|>"
	endOfTurn   = "<|eot_id|>"
)

// chatTemplate is a Jinja template that renders, for each message, a header with the role, a
// blank line, the text, and the end of the turn.
const chatTemplate = `{{ bos_token }}` +
	`{% for message in messages %}` +
	startHeader + `{{ message['role'] }}` + endHeader + "\n\n" + `{{ message['content'] | trim }}` + endOfTurn +
	`{% endfor %}` +
	`{% if add_generation_prompt %}` + startHeader + `assistant` + endHeader + "\n\n" + `{% endif %}`

// corpusMerges is the number of merges that the built-in text supports well; most merges beyond
// would be of words that occur once. trainTokenizer adds made-up words for larger vocabularies.
const corpusMerges = 4096

// trainTokenizer makes a tokenizer.json of exactly vocab tokens. A model may generate any of its
// ids, so each must have a text. If the built-in text is too short for that, made-up words are
// added to it.
func trainTokenizer(vocab int) ([]byte, error) {
	return trainer.Train(trainer.Config{
		VocabSize: vocab,
		Special:   []string{beginOfText, endOfText, startHeader, endHeader, endOfTurn},
	}, opticks.Text()+madeUpWords(max(0, vocab-corpusMerges)))
}

// madeUpWords returns n different words of three syllables. Each supports at least one merge,
// its last one.
func madeUpWords(n int) string {
	const consonants, vowels = "bdfghklmnprstvwz", "aeiou" // 16 and 5
	const words = 80 * 80 * 80
	var b strings.Builder
	for i := range n {
		// The factor and words are coprime, so the codes differ.
		code := uint64(i) * 161803 % words
		b.WriteByte(' ')
		for range 3 {
			b.WriteByte(consonants[code%16])
			b.WriteByte(vowels[code/16%5])
			code /= 80
		}
	}
	return b.String()
}

// takeSpecials sets BOS and EOS of c from a tokenizer made by trainTokenizer.
func takeSpecials(c *model.Config, vocabulary []byte) error {
	t, err := tokenfile.Parse(vocabulary, nil)
	if err != nil {
		return fmt.Errorf("random: generated tokenizer: %w", err)
	}
	id := func(content string) kv.Token {
		token, ok := t.AddedToken(content)
		if !ok || int(token) >= c.Vocab {
			panic(fmt.Sprintf("random: generated tokenizer has %q as %d, %v, of %d", content, token, ok, c.Vocab))
		}
		return token
	}
	c.BOS = []kv.Token{id(beginOfText)}
	c.EOS = []kv.Token{id(endOfText), id(endOfTurn)}
	return nil
}

func tokenizerConfig(c *model.Config) []byte {
	return indented(struct {
		AddBOS       bool   `json:"add_bos_token"`
		BOS          string `json:"bos_token"`
		EOS          string `json:"eos_token"`
		ChatTemplate string `json:"chat_template"`
		CleanUp      bool   `json:"clean_up_tokenization_spaces"`
		MaxLength    int    `json:"model_max_length"`
		Class        string `json:"tokenizer_class"`
	}{true, beginOfText, endOfText, chatTemplate, false, c.MaxPositions, "PreTrainedTokenizerFast"})
}
