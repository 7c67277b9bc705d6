package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/coppice-llm/coppice/internal/bail"
	"github.com/coppice-llm/coppice/kv"
)

// ErrInvalid is wrapped by errors about files that violate the format or contradict themselves:
// truncated JSON, duplicate ids, merges of unknown tokens.
var ErrInvalid = errors.New("tokenizer: invalid file")

// ErrUnsupported is wrapped by errors about unsupported features. The text names the feature and the
// supported alternatives.
var ErrUnsupported = errors.New("tokenizer: unsupported")

// invalid and unsupported end the reading of a file with an error that wraps ErrInvalid or
// ErrUnsupported.
func invalid(format string, args ...any) {
	bail.Out(fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...)))
}

func unsupported(format string, args ...any) {
	bail.Out(fmt.Errorf("%w: %w", ErrUnsupported, fmt.Errorf(format, args...)))
}

// fileJSON is tokenizer.json as huggingface/tokenizers reads and writes it.
type fileJSON struct {
	AddedTokens   []addedJSON `json:"added_tokens"`
	Normalizer    *partJSON   `json:"normalizer"`
	PreTokenizer  *partJSON   `json:"pre_tokenizer"`
	PostProcessor *partJSON   `json:"post_processor"`
	Decoder       *partJSON   `json:"decoder"`
	Model         *modelJSON  `json:"model"`
}

type addedJSON struct {
	ID         kv.Token `json:"id"`
	Content    string   `json:"content"`
	SingleWord bool     `json:"single_word"`
	LStrip     bool     `json:"lstrip"`
	RStrip     bool     `json:"rstrip"`
	Normalized bool     `json:"normalized"`
	Special    bool     `json:"special"`
}

type modelJSON struct {
	Type         string     `json:"type"`
	Dropout      *float64   `json:"dropout"`
	Prefix       string     `json:"continuing_subword_prefix"`
	Suffix       string     `json:"end_of_word_suffix"`
	Unk          *string    `json:"unk_token"`
	FuseUnk      bool       `json:"fuse_unk"`
	ByteFallback bool       `json:"byte_fallback"`
	IgnoreMerges bool       `json:"ignore_merges"`
	Vocab        vocabJSON  `json:"vocab"`
	Merges       mergesJSON `json:"merges"`
}

// partJSON is any step of the pipeline; its type determines the fields that are used.
type partJSON struct {
	Type string `json:"type"`

	Normalizers   []partJSON `json:"normalizers"`   // Sequence
	Pretokenizers []partJSON `json:"pretokenizers"` // Sequence
	Processors    []partJSON `json:"processors"`    // Sequence
	Decoders      []partJSON `json:"decoders"`      // Sequence

	AddPrefixSpace *bool       `json:"add_prefix_space"` // ByteLevel
	UseRegex       *bool       `json:"use_regex"`        // ByteLevel
	Pattern        patternJSON `json:"pattern"`          // Split, Replace
	Behavior       string      `json:"behavior"`         // Split
	Invert         bool        `json:"invert"`           // Split

	Prepend     string    `json:"prepend"`     // Prepend
	Content     string    `json:"content"`     // Replace, Strip (decoder)
	StripLeft   *bool     `json:"strip_left"`  // Strip (normalizer)
	StripRight  *bool     `json:"strip_right"` // Strip (normalizer)
	Start, Stop countJSON // Strip (decoder)

	Replacement   string  `json:"replacement"`       // Metaspace
	PrependScheme *string `json:"prepend_scheme"`    // Metaspace
	SplitAll      *bool   `json:"split"`             // Metaspace
	Individual    bool    `json:"individual_digits"` // Digits

	Single        []templateJSON            `json:"single"`         // TemplateProcessing
	SpecialTokens map[string]templateIDJSON `json:"special_tokens"` // TemplateProcessing
}

// maxNesting bounds the nesting of Sequences.
const maxNesting = 16

// steps returns the steps of p, in order: p itself, or the steps in a Sequence. p may be nil: there
// are none. what names the part of the file, for errors, and depth is the number of Sequences around p.
func (p *partJSON) steps(what string, depth int) (all []*partJSON) {
	switch {
	case p == nil:
		return nil
	case p.Type != "Sequence":
		return []*partJSON{p}
	case depth == maxNesting:
		unsupported("%s Sequences nested over %d deep; supported are fewer", what, maxNesting)
	}
	for _, list := range [][]partJSON{p.Normalizers, p.Pretokenizers, p.Processors, p.Decoders} {
		for i := range list {
			all = append(all, list[i].steps(what, depth+1)...)
		}
	}
	return all
}

// countJSON is the number of characters that a Strip decoder drops. Other steps have values of
// other types under the same field names; these are ignored here, and the step is refused for its
// type.
type countJSON int

// UnmarshalJSON implements json.Unmarshaler.
func (c *countJSON) UnmarshalJSON(data []byte) error {
	if len(data) == 0 || data[0] < '0' || data[0] > '9' {
		return nil
	}
	return json.Unmarshal(data, (*int)(c))
}

type patternJSON struct {
	Regex  string
	String string
}

// UnmarshalJSON leaves p empty if data is not an object. The pattern of Split and Replace is an
// object; a step with another kind of pattern is refused for its type.
func (p *patternJSON) UnmarshalJSON(data []byte) error {
	type plain patternJSON
	if !bytes.HasPrefix(data, []byte("{")) {
		return nil
	}
	return json.Unmarshal(data, (*plain)(p))
}

type templateJSON struct {
	SpecialToken *struct{ ID string }
	Sequence     *struct{ ID string }
}

type templateIDJSON struct {
	IDs []kv.Token `json:"ids"`
}

// vocabJSON maps the name of each token to its id. It stays nil if the file has a list, as
// Unigram models do; such a file is then refused for the model's type, not as invalid JSON.
type vocabJSON map[string]kv.Token

// UnmarshalJSON implements json.Unmarshaler.
func (v *vocabJSON) UnmarshalJSON(data []byte) error {
	if !bytes.HasPrefix(data, []byte("{")) {
		return nil
	}
	return json.Unmarshal(data, (*map[string]kv.Token)(v))
}

// mergesJSON is the list of merges, lowest rank first. A merge is the names of two tokens: ["a",
// "b"], or in older files "a b".
type mergesJSON [][]string

// UnmarshalJSON implements json.Unmarshaler.
func (m *mergesJSON) UnmarshalJSON(data []byte) error {
	first := bytes.TrimLeft(bytes.TrimPrefix(data, []byte("[")), " \t\r\n")
	if !bytes.HasPrefix(first, []byte(`"`)) {
		return json.Unmarshal(data, (*[][]string)(m))
	}
	var lines []string
	if err := json.Unmarshal(data, &lines); err != nil {
		return err
	}
	*m = make([][]string, len(lines))
	for i, line := range lines {
		(*m)[i] = strings.Split(line, " ")
	}
	return nil
}
