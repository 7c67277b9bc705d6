// Package cudamem owns KV in the memory of a CUDA device and in pinned memory of its
// host: as a [Pool], the device's pages and the streams that copy them to the host and back
// beside the kernels; as a store, the tier of extents in memory that the device can copy
// from and to. It never decides which page holds what, and launches no kernel.
//
// A page is one piece over all layers, so it moves by one copy. Copies to the host have a
// stream, copies to the device another one; a copy begins after the kernels that were queued
// before it, and after earlier copies that touch the same pages or the same memory.
//
// New, Begin and Await belong to the goroutine that queues kernels; End may be called from
// any. The device's context must be current where they are called.
//
//	pool, err := cudamem.New(ctx, stream, pageBytes, pages)
//	err = pool.Begin(cudamem.Copy{ID: 1, Pages: ids, Memory: memory, Done: event}, stream)
//	err = pool.Await(stream, 1)   // kernels queued from here on see it
//	err = ctx.SyncEvent(event)
//	pool.End(1)
package cudamem
