// Package planted owns the names of faults that package schedtest puts into a
// scheduler, to see its checkers find them. It is internal, so that nobody else can
// call Scheduler.Plant. It does nothing by itself.
package planted

// Fault is something that a scheduler does wrong.
type Fault uint8

// The faults.
const (
	None         Fault = iota
	ForgiveDebts       // a tenant with nothing open owes nothing
	KeepCredit         // a tenant keeps what it did not use of its share, for ever
	ChargeCached       // tokens from the cache are charged as computed ones are
	StaleMask          // a row names the mask of another state of its format
)
