package cpu

import (
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// TestConfig checks that the zero fields of a config get their defaults, and that Validate names each
// field that is out of bounds.
func TestConfig(t *testing.T) {
	c := Config{KVTokens: 100, Threads: 3}.WithDefaults()
	if want := (Config{PageTokens: 16, Pages: 7, KVTokens: 100, MaxSlots: 64, MaxRows: 64, MaxTokens: 512, MaxInflight: 2, MaxMoves: 64, Threads: 3}); c != want {
		t.Errorf("%+v, want %+v", c, want)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	bad := Config{PageTokens: 24, MaxSlots: -1, MaxInflight: 1, Threads: 1025, KVType: kv.DType(99), ISA: "mmx"}.WithDefaults()
	err := bad.Validate()
	for _, want := range []string{
		"cpu: PageTokens is 24, want a power of two\n", "cpu: MaxSlots is -1, want 1 to 65536\n", "cpu: MaxInflight is 1, want 2 to 64\n",
		"cpu: Threads is 1025, want 1 to 1024\n", "cpu: Pages and KVTokens are 0, set one of them\n", "cpu: KVType is ", `"mmx"`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}
