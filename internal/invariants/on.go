//go:build invariants

package invariants

// Enabled is true under -tags invariants.
const Enabled = true
