// Package mempool owns page ids: which pages of the KV pool are free and who
// holds the others. It never owns what is in a page; contents live in a store
// (mempool/hostmem) that an engine reads and writes.
//
// A [Pool] belongs to the pool actor and grants pages in bulk; a [Lease] belongs
// to a scheduler and hands them out one by one, so that planning a step waits for
// no message. Conservation is checked at every hand-over:
//
//	pool:   free + leased       = capacity
//	lease:  idle + held + cached = granted   (= the pool's leased)
//
// Idle pages wait in the lease, held pages belong to a running request, cached
// pages to the radix tree. Both types are single-owner and not safe for
// concurrent use.
//
//	pool, _ := mempool.NewPool(1024)
//	lease := mempool.NewLease(1024)
//	pages, _ := pool.Grant(64, nil)
//	lease.Add(pages)
//	held, ok := lease.Hold(3, nil)
package mempool
