// Package cudamem owns the pages of KV in the memory of a CUDA device, and the streams that copy
// them to pinned host memory and back while kernels run. It never decides which page holds what,
// and launches no kernel.
//
// A page is contiguous over all layers, so it moves in one copy. Each direction has its own
// stream. A copy begins after the kernels that were queued before it, and after earlier copies
// that touch the same pages or the same host memory.
//
// New, Begin and Await must be called by the goroutine that queues kernels, End may be called by
// any goroutine. The device's context must be current in the calling thread.
//
//	pool, err := cudamem.New(ctx, stream, pageBytes, pages)
//	err = pool.Begin(cudamem.Copy{ID: 1, Pages: ids, Memory: memory, Done: event}, stream)
//	err = pool.Await(stream, 1)   // kernels queued from now on see copy 1
//	err = ctx.SyncEvent(event)
//	pool.End(1)
package cudamem
