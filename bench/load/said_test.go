package load

import (
	"strings"
	"testing"
)

// TestSaid: the message of an error is quoted, in whatever form a server writes it.
func TestSaid(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"message":"no such model","code":404}}`: `"no such model"`,
		`{"error":"no such model"}`:                        `"no such model"`,
		`{"object":"error","message":"no such model"}`:     `"no such model"`,
		`{"message":"no such model","code":404}`:           `"no such model"`,
		`{"detail":"x"}`:                                   `"{\"detail\":\"x\"}"`,
		"<html>\x1b[2J\n":                                  `"<html>\x1b[2J"`,
		`"a text"`:                                         `"\"a text\""`,
		"":                                                 `""`,
		strings.Repeat("x", 201):                           `"` + strings.Repeat("x", 200) + `"…`,
	} {
		if got := Said([]byte(body)); got != want {
			t.Errorf("%s gives %s, want %s", body, got, want)
		}
	}
}
