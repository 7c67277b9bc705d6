package radixcache

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestConfigDefaults(t *testing.T) {
	for _, tc := range []struct{ in, want Config }{
		{Config{}, Config{PageTokens: 16, BlockTokens: 16, SLRUHits: 1}},
		{Config{PageTokens: 1, Events: true}, Config{PageTokens: 1, BlockTokens: 16, Events: true, SLRUHits: 1}},
		{Config{PageTokens: 3}, Config{PageTokens: 3, BlockTokens: 18, SLRUHits: 1}},
		{Config{PageTokens: 64}, Config{PageTokens: 64, BlockTokens: 64, SLRUHits: 1}},
		{Config{PageTokens: 100}, Config{PageTokens: 100, BlockTokens: 100, SLRUHits: 1}},
		{Config{PageTokens: 8, BlockTokens: 24}, Config{PageTokens: 8, BlockTokens: 24, SLRUHits: 1}},
		{Config{PageTokens: MaxPageTokens}, Config{PageTokens: 32768, BlockTokens: 32768, SLRUHits: 1}},
		{Config{Policy: CostAware, TTL: 1, PinnedTokens: 1}, Config{PageTokens: 16, BlockTokens: 16, Policy: CostAware, TTL: 1, PinnedTokens: 1, SLRUHits: 1}},
		{Config{Policy: SLRU, SLRUHits: 3}, Config{PageTokens: 16, BlockTokens: 16, Policy: SLRU, SLRUHits: 3}},
	} {
		c, err := New(tc.in)
		if err != nil {
			t.Errorf("%+v: %v", tc.in, err)
		} else if got := c.cfg; got != tc.want {
			t.Errorf("%+v became %+v, want %+v", tc.in, got, tc.want)
		}
	}
}

func TestConfigFaults(t *testing.T) {
	for _, tc := range []struct {
		in   Config
		want []string
	}{
		{Config{PageTokens: -1}, []string{"PageTokens is -1"}},
		{Config{PageTokens: MaxPageTokens + 1}, []string{"PageTokens is 32769"}},
		{Config{PageTokens: 32769, BlockTokens: -4}, []string{"PageTokens is 32769", "BlockTokens is -4"}},
		{Config{PageTokens: 8, BlockTokens: 20}, []string{"BlockTokens is 20, want a multiple"}},
		{Config{BlockTokens: 8}, []string{"BlockTokens is 8"}},
		{Config{Policy: Policy(len(policies))}, []string{fmt.Sprintf("Policy is policy(%d)", len(policies))}},
		{Config{SLRUHits: -1}, []string{"SLRUHits is -1"}},
		{Config{TTL: -time.Second, PinnedTokens: -1}, []string{"TTL is -1s", "PinnedTokens is -1"}},
	} {
		_, err := New(tc.in)
		if !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: error %v", tc.in, err)
			continue
		}
		if got := strings.Count(err.Error(), ErrConfig.Error()); got != len(tc.want) {
			t.Errorf("%+v: %d faults, want %d: %v", tc.in, got, len(tc.want), err)
		}
		for _, w := range tc.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%+v: %v, want %q", tc.in, err, w)
			}
		}
	}
}

// Names are parsed and printed, in any case; the error for an unknown one lists them all.
func TestNamesOfEnums(t *testing.T) {
	for _, p := range Policies() {
		var got Policy
		if err := got.UnmarshalText([]byte(strings.ToUpper(p.String()))); err != nil || got != p {
			t.Errorf("%v read as %v, %v", p, got, err)
		}
	}
	var p Policy
	if err := p.UnmarshalText([]byte("best")); err == nil || !strings.Contains(err.Error(), `"best"`) || !strings.Contains(err.Error(), "cost-aware") {
		t.Errorf("policy best: %v", err)
	}
	for want, got := range map[string]fmt.Stringer{"policy(99)": Policy(99), "reason(9)": Reason(9), "why(9)": Why(9), "quota": ByQuota, "evicted": WhyEvicted, "flushed": WhyFlushed} {
		if got.String() != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
