// Package schedtest owns two ways of running package scheduler without a model,
// actors or wall-clock time: a seeded simulation of a whole shell around it, with
// checkers, and a small script language. It never decides for the scheduler: it
// calls it, plays the backend and the pool, and checks its promises.
//
// Everything runs on the caller's goroutine and in virtual time. All randomness
// comes from the seed, including the configuration of the world: so a failure is
// one line, and its seed replays it.
//
//	report, err := schedtest.Run(schedtest.Options{Seed: 7, Steps: 300, Faults: true})
//	if err != nil {
//		return err // ledger: seed 7, step 41: page 3 ... (replay: coppice sim --seed 7 --steps 300 --faults)
//	}
//	fmt.Print(report)
//
// A rig connects a scheduler to a simulated backend and, by messages, to a pool, from
// which another scheduler may lease, too (rival.go). A world (run.go) adds load and
// faults, and a Script (in the tests) drives a rig by hand. After every move the checkers (see check.go) compare the new state with the
// promises. The tests plant bugs in worlds, each of which one checker must find: this
// tests the checkers.
package schedtest
