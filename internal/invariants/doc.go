// Package invariants reports whether the expensive self-checks are compiled in.
// Build or test with -tags invariants to run the full walks after each mutation
// and to poison freed pages; without the tag they compile away.
package invariants
