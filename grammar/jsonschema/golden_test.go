package jsonschema

import (
	"encoding/json"
	"os"
	"testing"
)

// golden is testdata/golden.json: schemas and texts, with another validator's verdict on each
// text and the verdict required of the grammar.
type golden struct {
	About string
	Cases []struct {
		Schema string
		Texts  []struct {
			Text         string
			Valid, Match bool
		}
	}
}

func readGolden(t testing.TB) golden {
	t.Helper()
	data, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestGolden(t *testing.T) {
	texts := 0
	for _, c := range readGolden(t).Cases {
		rules, err := Rules([]byte(c.Schema), Config{})
		if err != nil {
			t.Errorf("%s: %v", c.Schema, err)
			continue
		}
		if err := rules.Validate(); err != nil {
			t.Errorf("%s: %v", c.Schema, err)
		}
		for _, text := range c.Texts {
			if matches(rules, text.Text) != text.Match {
				t.Errorf("%s: match of %s is not %v", c.Schema, text.Text, text.Match)
			}
			if text.Match && !json.Valid([]byte(text.Text)) {
				t.Errorf("%s: %s is not JSON", c.Schema, text.Text)
			}
			texts++
		}
	}
	if texts < 300 {
		t.Errorf("only %d texts", texts)
	}
}
