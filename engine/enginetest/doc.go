// Package enginetest owns the conformance suite that every backend passes: one
// check per promise of package engine, and for each check at least one control, a
// deliberately broken backend that must fail it. It never knows which backend it
// tests and imports none.
//
// Checks compare digests of the logits, not only tokens: another summation
// order changes most logits and hardly any arg max. Call it from a test; it drives
// the backend from that test's goroutine.
//
//	func TestConformance(t *testing.T) { enginetest.Run(t, open) }
//	func TestControls(t *testing.T)    { enginetest.RunControls(t, open) }
//
//	func open(t testing.TB, o enginetest.Options) engine.Backend { … }
package enginetest
