package main

import (
	"sync"
	"testing"
)

// TestCounterCallsInOrder checks that a bar of several goroutines gets each count once and in order.
func TestCounterCallsInOrder(t *testing.T) {
	last := 0
	advance := counter(func(done int) {
		if done != last+1 {
			t.Errorf("%d after %d", done, last)
		}
		last = done
	})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				advance()
			}
		})
	}
	all.Wait()
	if last != 8000 {
		t.Errorf("ended at %d", last)
	}
}
