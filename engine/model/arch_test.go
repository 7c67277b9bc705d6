package model

import (
	"strings"
	"testing"
)

func TestArchs(t *testing.T) {
	var a Arch
	if a.String() != "llama" {
		t.Errorf("the zero value is %q", a)
	}
	for _, known := range Archs() {
		if err := a.UnmarshalText([]byte(known)); err != nil || a != known || a.String() != string(known) {
			t.Errorf("%q: %v, %v", known, a, err)
		}
	}
	for _, bad := range []string{"", "gemma", "Qwen2"} {
		if err := a.UnmarshalText([]byte(bad)); err == nil || !strings.Contains(err.Error(), "llama, mistral, qwen2 or qwen3") {
			t.Errorf("%q: error %v", bad, err)
		}
	}
}
