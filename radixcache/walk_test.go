package radixcache

import (
	"errors"
	"slices"
	"testing"
)

// TestWalkShowsEverything: nodes, tokens and pages as Stats counts them, parents first.
func TestWalkShowsEverything(t *testing.T) {
	c := grown(t, Config{PageTokens: 2})
	var nodes, leaves, tails, tokens, pages int
	seen := map[NodeID]bool{Root: true}
	for v := range c.Walk() {
		if !seen[v.Parent] || seen[v.ID] {
			t.Errorf("node %d after its parent %d: %v", v.ID, v.Parent, seen[v.Parent])
		}
		seen[v.ID] = true
		nodes++
		leaves += count(v.Leaf)
		tails += count(v.Tail)
		tokens += len(v.Tokens)
		pages += len(v.Pages)
	}
	s := c.Stats()
	if nodes != s.Nodes || leaves != s.Leaves || tails != s.Tails || tokens != s.Tokens || pages != s.Pages || tails == 0 {
		t.Errorf("walked %d nodes, %d leaves, %d tails, %d tokens, %d pages:\n%v", nodes, leaves, tails, tokens, pages, s)
	}
	for range c.Walk() {
		break // an early end does no harm
	}
}

// TestWalkTo: a walk to a depth shows the nodes above it in the order of Walk, and visits no
// other node.
func TestWalkTo(t *testing.T) {
	c := grown(t, Config{PageTokens: 2})
	order, depth, deepest := []NodeID{}, map[NodeID]int{Root: 0}, 0
	for v := range c.Walk() {
		depth[v.ID] = depth[v.Parent] + 1
		order, deepest = append(order, v.ID), max(deepest, depth[v.ID])
	}
	if deepest < 3 {
		t.Fatalf("the tree is %d deep: nothing is tested", deepest)
	}
	for most := deepest + 1; most > 0; most-- {
		var want, got []NodeID
		for _, id := range order {
			if depth[id] <= most {
				want = append(want, id)
			} else {
				c.nodes[id].space = nil // a look at it panics
			}
		}
		for v := range c.WalkTo(most) {
			got = append(got, v.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("to depth %d: %v, want %v", most, got, want)
		}
	}
}

type brokenWriter struct{ left int }

var errBroken = errors.New("no room")

func (w *brokenWriter) Write(p []byte) (int, error) {
	if len(p) > w.left {
		return 0, errBroken
	}
	w.left -= len(p)
	return len(p), nil
}

func TestSnapshotReportsErrors(t *testing.T) {
	c := grown(t, Config{PageTokens: 2})
	for _, room := range []int{0, 10, 100} {
		if err := c.Snapshot(&brokenWriter{room}); !errors.Is(err, errBroken) {
			t.Errorf("with room for %d bytes: %v", room, err)
		}
	}
}
