package radixcache

import (
	"errors"
	"strings"
	"testing"
)

func TestConfigDefaults(t *testing.T) {
	for _, tc := range []struct{ in, want Config }{
		{Config{}, Config{PageTokens: 16, BlockTokens: 16}},
		{Config{PageTokens: 1, Events: true}, Config{PageTokens: 1, BlockTokens: 16, Events: true}},
		{Config{PageTokens: 64}, Config{PageTokens: 64, BlockTokens: 64}},
		{Config{PageTokens: 8, BlockTokens: 24}, Config{PageTokens: 8, BlockTokens: 24}},
		{Config{PageTokens: MaxPageTokens}, Config{PageTokens: 256, BlockTokens: 256}},
	} {
		c, err := New(tc.in)
		if err != nil {
			t.Errorf("%+v: %v", tc.in, err)
		} else if got := c.Config(); got != tc.want {
			t.Errorf("%+v became %+v, want %+v", tc.in, got, tc.want)
		}
	}
}

func TestConfigFaults(t *testing.T) {
	for _, tc := range []struct {
		in   Config
		want []string
	}{
		{Config{PageTokens: 3}, []string{"PageTokens 3", "BlockTokens 16, want a multiple"}},
		{Config{PageTokens: -1}, []string{"PageTokens -1"}},
		{Config{PageTokens: 512}, []string{"PageTokens 512"}},
		{Config{PageTokens: 257, BlockTokens: -4}, []string{"PageTokens 257", "BlockTokens -4"}},
		{Config{PageTokens: 8, BlockTokens: 20}, []string{"BlockTokens 20"}},
		{Config{BlockTokens: 8}, []string{"BlockTokens 8"}},
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
