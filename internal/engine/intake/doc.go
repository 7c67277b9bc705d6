// Package intake is the front of a backend: it owns the checks and counts of Submit and
// Move, the queue of what was accepted, tickets, and moves that ended. It never computes, and
// never looks into a page.
//
// A backend embeds a [Queue], which gives it Submit and, but for HostAlloc, what a
// mover has. It runs one goroutine over Jobs:
//
//	q := intake.New(&info, maxMoves)
//	go func() {
//		for j := range q.Jobs() {
//			res, err := execute(j)
//			q.Finish(j, res, err)
//		}
//	}()
//
// A [Size] fills in and checks what the configurations of backends have in common.
package intake
