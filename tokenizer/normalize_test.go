package tokenizer

import (
	"errors"
	"strings"
	"testing"
)

// nfcSupported tells the golden tests to leave out files that ask for NFC.
const nfcSupported = false

func TestNFCIsRefusedByName(t *testing.T) {
	for _, n := range []string{`{"type":"NFC"}`, `{"type":"Sequence","normalizers":[{"type":"NFC"}]}`} {
		_, err := Parse(edit(t, map[string]string{"normalizer": n}), nil)
		if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), `normalizer "NFC"`) {
			t.Errorf("normalizer %s: %v", n, err)
		}
	}
}
