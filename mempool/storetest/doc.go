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
// faults, calls that never return, use by many goroutines (run it under the race detector), leaks
// after Close and, for durable stores, the contents after reopening. A shared store must also leave
// other processes their records and the quota, whatever faults this process has, and survive pipes
// and leases that others leave. RunControls runs the same checks against
// deliberately broken stores, and fails if a check does not detect one.
package storetest
