// Package scheduler owns the decision of what runs next: which requests wait,
// which run, what each step computes, where its KV goes and how every request
// ends. It never computes, never waits, reads no clock and starts no goroutine.
//
// A [Scheduler] is a deterministic state machine with one owner (the scheduler
// actor, a simulator, or an embedder's own loop). Inputs are method calls, each
// with the time; outputs are plans and values appended to the caller's buffers:
//
//	err := s.Add(now, req)              // a request enters by the door, or is refused
//	plan := s.Next(now)                 // what to run now, or nil
//	ticket, err := backend.Submit(&plan.Batch)
//	<-ticket.Done()
//	result, err := ticket.Result()
//	out = s.Complete(now, plan, result, out[:0])   // tokens and endings
//
// With Config.MaxInflight 2, Next may be called while a plan runs; plans complete
// in order.
//
// A request's life, top to bottom: Add (door.go, validate.go) puts it into the queue
// (queue.go, lane.go), where its policy ranks it (policy.go, order.go, weight.go,
// tenant.go, accounts.go). Next (step.go) gives running requests pages and rows to
// decode, admits waiting ones (admit.go) onto cached prefixes, or lets them follow a
// prompt in flight (follow.go), and shares the rest of the budget among the prompts
// that are being computed (share.go, budget.go). supply.go says which
// pages a request can get: those of the lease, by eviction, and by preemption (room.go,
// preempt.go). reserve.go says how many pages the others will need, precedence.go how
// priorities compare. Complete (complete.go, receipt.go) takes tokens,
// publishes prefixes to the radix cache (publish.go) and ends samples (retire.go, charge.go);
// KV of a failed request is hidden from others (distrust.go). With Config.Tiers, what
// the device gives up is written to lower tiers (tiers.go), and waiting requests fetch what
// those have of them (fetch.go), which they pin until others need the room (giveway.go). Expire (expire.go)
// ends what has run out of time. Why (why.go), the running (running.go) and timelines
// (timeline.go) tell what happens.
//
// Every sample of a request that Add accepts gets exactly one Output with an Ending;
// the last one's is Final.
package scheduler
