package missratio

import (
	"errors"
	"strings"
	"testing"
)

func TestConfigLimits(t *testing.T) {
	for _, tc := range []struct {
		cfg  Config
		want string // in the error; "" for none
	}{
		{Config{}, ""},
		{Config{BlockTokens: 1, Samples: MinSamples, MaxTokens: 1, HalfLifeTokens: 1}, ""},
		{Config{BlockTokens: (1 << 15), Samples: MaxSamples, MaxTokens: (1 << 40)}, ""},
		{Config{BlockTokens: -1}, "BlockTokens is -1"},
		{Config{BlockTokens: (1 << 15) + 1}, "BlockTokens is 32769"},
		{Config{PageTokens: 16, BlockTokens: 24}, "BlockTokens is 24, want a multiple of PageTokens, 16"},
		{Config{PageTokens: (1 << 15)}, ""},
		{Config{PageTokens: (1 << 15) + 1}, "PageTokens is 32769"},
		{Config{PageTokens: -1}, "PageTokens is -1"},
		{Config{Samples: MinSamples - 1}, "Samples is 63"},
		{Config{Samples: MaxSamples + 1}, "Samples is 16777217"},
		{Config{MaxTokens: -1}, "MaxTokens is -1"},
		{Config{MaxTokens: (1 << 40) + 1}, "MaxTokens is 1099511627777"},
		{Config{HalfLifeTokens: -1}, "HalfLifeTokens is -1"},
	} {
		err := tc.cfg.Validate()
		if tc.want == "" && err != nil || tc.want != "" && (!errors.Is(err, errConfig) || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%+v: %v, want %q", tc.cfg, err, tc.want)
		}
	}
	if _, err := New(Config{BlockTokens: -1, Samples: 1}); err == nil || !strings.Contains(err.Error(), "Samples is 1,") || !strings.Contains(err.Error(), "BlockTokens is -1") {
		t.Errorf("not all faults: %v", err)
	}
}
