// Package storetest is the suite that every mempool.Store passes, with faults planted at
// the calls below it. It owns no store and knows none by name.
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Harness{Open: open, Durable: true})
//	}
//
//	func TestBrokenStores(t *testing.T) {
//		storetest.RunControls(t, harness)
//	}
//
// What it checks is the contract in the comment of mempool.Store: round trips and parts
// of extents, order of parents and children, deadlines, cancellation, capacity, faults
// once and for good, use by many goroutines (run it under the race detector), what is
// left after Close, and for durable stores what a second opening finds.
// RunControls runs the same checks against stores broken on purpose, and fails where a
// check finds nothing.
package storetest
