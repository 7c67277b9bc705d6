package tiering

import (
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// TestNoChanges: a book whose owner never calls Changes keeps none.
func TestNoChanges(t *testing.T) {
	for _, silent := range []bool{false, true} {
		c := Config{Mode: Through, NoChanges: silent}
		c.Tiers[kv.TierHost] = tierOf(10)
		b := newBook(t, c)
		compute(b, 0, sequence(32))
		kinds(b, 0)
		fill(b, kv.TierHost, 2)
		if changes, written := len(b.changes), len(b.Device.written); (changes == 0) != silent || (written == 0) != silent {
			t.Errorf("silent %v: %d changes and %d writes are kept", silent, changes, written)
		}
	}
}
