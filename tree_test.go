package coppice

import (
	"testing"

	"github.com/coppice-llm/coppice/radixcache"
)

// Tree visits at most one node more than it returns, since the steps wait for it.
func TestTreeStops(t *testing.T) {
	looked := 0
	part := TreeQuery{MaxNodes: 2}.list(func(yield func(radixcache.NodeView) bool) {
		for i := range radixcache.NodeID(1000) {
			if looked++; !yield(radixcache.NodeView{ID: i + 1, Parent: radixcache.Root}) {
				return
			}
		}
	}, 1000)
	if len(part.Nodes) != 2 || part.Hidden != 998 || looked != 3 {
		t.Errorf("%d nodes shown, %d hidden, %d looked at", len(part.Nodes), part.Hidden, looked)
	}
}
