// Package sim is a simulated backend: it computes the times and outputs of a model's
// steps without a model. It owns a pool of tiny KV slots, a cost model of real devices and
// a clock; it never runs a kernel and never decides what to run.
//
// Outputs. Each KV slot holds its token, its position and a hash over the whole
// prefix, chained through the page table: h(p) = mix(h(p-1), token). The sampled
// token is a function of that hash, so a wrong page, an early reuse, a missing
// copy or a stale deferred token changes the output of a request. [Backend.Expect]
// computes the right output. With Config.Logits the hash makes real logits, from which
// package sampling draws, and every promise of package engine holds.
//
// Sanitizer. Reads are checked, see [Mode]. A batch that reads or overwrites the wrong KV
// ends the device with an [engine.Error] that wraps [ErrCorrupt] and names batch, row,
// position and page. So does a read of a refused draft's KV, a row that follows one with
// drafts before that one's result, and a caller that changes a batch, or the host memory of
// a move, while it is pending.
//
// Time. A step takes [Profile.Step]; steps run one after another. With
// Config.Clock time is virtual: nothing happens until Clock.Step, one goroutine
// does everything, and the same calls give the same run. Without it tickets
// complete in real time, any goroutine may call what package engine allows, and
// tests may run in a bubble of testing/synctest.
//
//	profile, err := sim.ProfileByName("h200")
//	clock := sim.NewClock()
//	backend, err := sim.Open(sim.Config{Profile: profile, Clock: clock})
//	ticket, err := backend.Submit(&batch)
//	for clock.Step() {
//	}
//	result, err := ticket.Result() // complete, clock.Now() later
package sim
