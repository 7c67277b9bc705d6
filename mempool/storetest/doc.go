// Package storetest is the conformance suite of mempool.Store, with faults planted in the calls
// that a store makes. It owns no store and depends on no implementation.
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Harness{Open: open, Durable: true})
//	}
//
//	func TestBrokenStores(t *testing.T) {
//		storetest.RunControls(t, harness)
//	}
//
// Run checks the contract in the comment of mempool.Store: round trips and parts of extents, the
// order of parents and children, deadlines, cancellation, capacity, transient and permanent
// faults, use by many goroutines (run it under the race detector), leaks after Close and, for
// durable stores, the contents after reopening. RunControls runs the same checks against
// deliberately broken stores, and fails if a check does not detect one.
package storetest
