// Package scheduler owns the decision of what runs next: which requests wait, which run,
// what each step computes, which pages hold its KV and how each request ends. It never
// computes, blocks, reads a clock or starts a goroutine.
//
// A [Scheduler] is a deterministic state machine with one owner: the scheduler actor, a
// simulator or an embedder's own loop. Inputs are method calls, each with the time.
// Outputs are plans, and values appended to the caller's buffers:
//
//	err := s.Add(now, req)              // accepts the request into the queue, or refuses it
//	plan := s.Next(now)                 // the next step, or nil
//	ticket, err := backend.Submit(&plan.Batch)
//	<-ticket.Done()
//	result, err := ticket.Result()
//	out = s.Complete(now, plan, result, out[:0])   // tokens and endings
//
// The same calls with the same values give the same outputs, so a run can be replayed from
// a record of its inputs. With Config.MaxInflight 2, Next may be called while a plan runs;
// plans complete in order.
//
// The files, in the order of a request's life:
//
//   - Add: add.go checks the request with validate.go and puts it into the queue;
//     displace.go makes room in a full one.
//   - Queue: queue.go and lane.go hold the waiting sequences, order.go takes the next one.
//     policy.go lists the policies that rank them; each has a file. internal/accounts has the
//     tenants. index.go ranks a sequence again when more of its prompt gets cached.
//   - Next: step.go. preempt.go gives decoding sequences their pages, admit.go admits
//     waiting sequences onto cached prefixes, follow.go lets them wait for a prompt in
//     flight, share.go and budget.go divide the rest of the budget among prompts,
//     internal/predict predicts the time of a step, plan.go builds its rows, and
//     text.go their masks with internal/masks. drafting.go chooses the guesses at next tokens
//     that rows verify, from internal/drafts; speculate.go has the choices of a caller.
//   - Pages: supply.go counts the pages that a sequence can get from the lease, by
//     eviction and by preemption; room.go takes them. reserve.go estimates how many pages
//     the running sequences will need, from the output lengths that internal/predict has
//     learnt. precedence.go compares priorities.
//   - Complete: complete.go. receipt.go checks the answers, publish.go puts prefixes into
//     the radix cache, retire.go and bill.go end samples. distrust.go hides the KV of a
//     failed request from others.
//   - Tiers, with Config.Tiers: tiers.go writes to lower tiers what the device gives up,
//     fetch.go reads it back for waiting sequences and pins it, giveway.go takes those
//     pins when others need the pages.
//   - Time limits: expire.go. To look inside: why.go, running.go, timeline.go, metrics.go.
//
// Every sample of a request that Add accepts gets exactly one Output with an Ending; the
// last one's is Final.
package scheduler
