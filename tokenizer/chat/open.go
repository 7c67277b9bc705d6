package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Open reads the chat templates of the model directory dir, by the rules of Hugging Face's
// library: chat_template.jinja is the default, and the files in additional_chat_templates have
// their own names. Without such files it uses chat_template in tokenizer_config.json, a
// string or a list of names and templates. The special tokens are those of
// tokenizer_config.json. Errors are those of reading the files and those of [NewNamed]; [ErrInvalid]
// if there is no template.
func Open(dir string) (*Template, error) {
	config, err := readOptional(filepath.Join(dir, "tokenizer_config.json"))
	if err != nil {
		return nil, err
	}
	templates, special, err := parseConfig(config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, "tokenizer_config.json"), err)
	}
	if err := readTemplates(dir, templates); err != nil {
		return nil, err
	}
	if len(templates) == 0 {
		return nil, fmt.Errorf("%w: %s has no chat_template.jinja, and its tokenizer_config.json no chat_template; it may be no chat model", ErrInvalid, dir)
	}
	t, err := NewNamed(templates, special, Limits{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return t, nil
}

// Parse reads the chat template and the special tokens from the contents of a
// tokenizer_config.json. Errors are those of [NewNamed]; [ErrInvalid] if there is no template.
func Parse(config []byte) (*Template, error) {
	templates, special, err := parseConfig(config)
	if err != nil {
		return nil, err
	}
	if len(templates) == 0 {
		return nil, fmt.Errorf("%w: there is no chat_template; it may be no chat model", ErrInvalid)
	}
	return NewNamed(templates, special, Limits{})
}

// readTemplates adds the templates that have their own files.
func readTemplates(dir string, templates map[string]string) error {
	one, err := readOptional(filepath.Join(dir, "chat_template.jinja"))
	if err != nil {
		return err
	}
	if one != nil {
		templates[defaultName] = string(one)
	}
	files := os.DirFS(dir) // not filepath.Glob: dir may have characters of patterns
	more, err := fs.Glob(files, "additional_chat_templates/*.jinja")
	if err != nil {
		return fmt.Errorf("chat: open: %w", err)
	}
	for _, name := range more {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return fmt.Errorf("chat: open: %s: %w", dir, err)
		}
		templates[strings.TrimSuffix(path.Base(name), ".jinja")] = string(data)
	}
	return nil
}

// readOptional returns the contents of a file, nil if it does not exist.
func readOptional(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("chat: open: %w", err)
	}
	return data, nil
}

// specialNames are the special tokens that templates see as variables.
var specialNames = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// parseConfig returns the templates and the special tokens in tokenizer_config.json; data may
// be nil.
func parseConfig(data []byte) (templates, special map[string]string, err error) {
	templates, special = map[string]string{}, map[string]string{}
	if data == nil {
		return templates, special, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, nil, fmt.Errorf("%w: no JSON object: %w", ErrInvalid, err)
	}
	for _, name := range specialNames {
		token, err := tokenContent(fields[name])
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %s: %w", ErrInvalid, name, err)
		}
		if token != "" {
			special[name] = token
		}
	}
	switch raw := fields["chat_template"]; {
	case raw == nil || string(raw) == "null":
	case raw[0] == '"':
		var one string
		if err := json.Unmarshal(raw, &one); err != nil {
			return nil, nil, fmt.Errorf("%w: chat_template: %w", ErrInvalid, err)
		}
		templates[defaultName] = one
	default:
		var named []struct{ Name, Template string }
		if err := json.Unmarshal(raw, &named); err != nil {
			return nil, nil, fmt.Errorf("%w: chat_template is neither a string nor a list of names and templates: %w", ErrInvalid, err)
		}
		for _, n := range named {
			templates[n.Name] = n.Template
		}
	}
	return templates, special, nil
}

// tokenContent returns a special token, given as a string or in an object; "" for null.
func tokenContent(raw json.RawMessage) (string, error) {
	if raw == nil || string(raw) == "null" {
		return "", nil
	}
	if raw[0] == '{' {
		var object struct{ Content string }
		err := json.Unmarshal(raw, &object)
		return object.Content, err
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err
}
