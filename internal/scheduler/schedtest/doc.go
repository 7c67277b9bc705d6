// Package schedtest owns two ways of running package scheduler without a model,
// an actor or a clock on the wall: a seeded simulation of a whole shell around
// it, with checkers, and a small language for scripts. It never decides what a
// scheduler does: it only asks, answers and holds it to its promises.
//
// Everything runs on the caller's goroutine and on virtual time, and everything
// random comes from the seed, the configuration of the world too: so a failure
// is one line, and its seed replays it.
//
//	report, err := schedtest.Run(schedtest.Options{Seed: 7, Steps: 300, Faults: true})
//	if err != nil {
//		return err // ledger: seed 7, step 41: page 3 ... (replay: coppice sim --seed 7 --steps 300 --faults)
//	}
//	fmt.Print(report)
//
// A rig is a scheduler between a simulated backend and a pool that is asked by
// mail; a world (run.go) puts load and faults on it, a [Script] lets one drive
// it by hand. After every move the checkers (check.go lists them) look at what
// was done. [Plant] names the bugs that can be planted, each of which one
// checker must find: so the checkers are tested as well.
package schedtest
