// Package planted owns the names of faults that package schedtest puts into a
// scheduler, to test that its checkers find them. It is internal, so that no other
// module can call Scheduler.Plant. It does nothing by itself.
package planted

// Fault is a deliberate bug of a scheduler.
type Fault uint8

// The faults.
const (
	None         Fault = iota
	ForgiveDebts       // the debt of a tenant without open requests is dropped
	KeepCredit         // a tenant keeps the unused part of its share without limit
	ChargeCached       // tokens from the cache are charged as computed ones are
	StaleMask          // a row names the mask of another state of its format
	PreemptAgain       // a sequence is preempted again before it has sampled a token
	KeepBelow          // KV that counts as wrong stays in lower tiers
	AllPublic          // a salted prompt counts as public as a whole
	Unverified         // a guess that the backend refused becomes a token of the output
	ForeignDraft       // texts of all namespaces give guesses
	KeepRefused        // KV of refused guesses is published with that of the tokens
	LateMask           // the mask after a guess is that before it
	BillRefused        // refused guesses are billed as output
	KeepReleased       // what a released session left is kept as if its next turn might come
	KeepParked         // a parked prefix stays on the device
	ParkEarly          // a park ends before the tier has its prefix
	KeepOver           // what a namespace holds beyond its quota stays when its pins are released
)
