package scheduler

import (
	"fmt"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// check walks fetches and tiers: pages held for Reads have no other owner, extents that
// are on the device have their pages in the tree, and the book's own ledgers balance. It adds the held pages to owner.
func (fs *fetches) check(owner map[kv.PageID]RequestID) error {
	if fs == nil {
		return nil
	}
	held, coming := 0, 0
	own := func(pages []kv.PageID, id RequestID) error {
		for _, p := range pages {
			if p == kv.NoPage {
				continue
			}
			if other, taken := owner[p]; taken || !fs.room.lease.Held(p) {
				return fmt.Errorf("scheduler: page %d, held for a read, belongs to request %d or is not held", p, other)
			}
			owner[p] = id
			held++
		}
		return nil
	}
	for id, a := range fs.tiers.reading { // any order: only checks
		if err := own(a.pages, 0); err != nil {
			return err
		}
		coming += count(a.pages)
		if a.q != nil && a.q.place != fetching {
			return fmt.Errorf("scheduler: read %d is for request %d at place %d", id, a.q.req.ID, a.q.place)
		}
	}
	for _, q := range fs.waiting {
		if q.place != fetching {
			return fmt.Errorf("scheduler: request %d fetches at place %d", q.req.ID, q.place)
		}
		for i := range q.fetch.parts {
			if err := own(q.fetch.parts[i].pages, q.req.ID); err != nil {
				return err
			}
		}
	}
	if held != fs.tiers.held || coming != fs.tiers.coming {
		return fmt.Errorf("scheduler: %d pages are held for reads, %d for reads in flight; counted %d and %d", held, coming, fs.tiers.held, fs.tiers.coming)
	}
	for _, q := range fs.pinning {
		if q.place != waiting && q.place != following && q.place != expected || q.fetch.pin == radixcache.Root {
			return fmt.Errorf("scheduler: request %d at place %d keeps a fetched prefix at node %d", q.req.ID, q.place, q.fetch.pin)
		}
	}
	for _, p := range fs.tiers.book.Device.Pages(nil) {
		if !fs.room.lease.Cached(p) {
			return fmt.Errorf("scheduler: page %d of an extent on the device is not in the tree", p)
		}
	}
	return fs.tiers.book.Check()
}
