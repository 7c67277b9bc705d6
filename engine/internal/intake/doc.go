// Package intake is the front of a backend. It owns the checks and limits of Submit and Move, the
// queue of accepted jobs, tickets, and the results of moves. It never computes and never reads a
// page.
//
// A backend embeds a [Queue], which implements Submit and all of engine.Mover except HostAlloc and
// HostFree. It runs one goroutine over Jobs:
//
//	q := intake.New(&info, maxMoves)
//	go func() {
//		for j := range q.Jobs() {
//			res, err := execute(j)
//			q.Finish(j, res, err)
//		}
//	}()
package intake
