package radixcache

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// journal collects what happened until it is taken.
type journal struct{ events []kv.Event }

func (j *journal) add(ev kv.Event) { j.events = append(j.events, ev) }

// withdraw notes that blocks went. Removals in a row are one event: an eviction takes
// many small leaves.
func (j *journal) withdraw(ns kv.Namespace, gone []kv.BlockHash) {
	if last := len(j.events) - 1; last >= 0 {
		if ev := &j.events[last]; ev.Kind == kv.Removed && ev.Namespace == ns {
			ev.Hashes = append(ev.Hashes, gone...)
			return
		}
	}
	j.add(kv.Event{Kind: kv.Removed, Namespace: ns, Hashes: slices.Clone(gone)})
}

// take appends the events to dst and forgets them: their slices belong to the caller.
func (j *journal) take(dst []kv.Event) []kv.Event {
	dst = append(dst, j.events...)
	clear(j.events)
	j.events = j.events[:0]
	return dst
}

// Dump appends Stored events of all blocks that were announced and not removed, parents
// before children, with the hashes that the tree keeps; Block.Local is 0. It copies the
// tokens of all blocks. Without Config.Events it appends nothing.
func (c *Cache) Dump(dst []kv.Event) []kv.Event {
	var path []kv.Token
	for v := range c.Walk() {
		path = append(path[:v.Start], v.Tokens...)
		n := &c.nodes[v.ID]
		if n.hashes == nil {
			continue
		}
		ev := c.storedEvent(n, path)
		for i, h := range *n.hashes {
			ev.Blocks[i].Hash = h
		}
		dst = append(dst, ev)
	}
	return dst
}

// hashList is a copy, nil if there is nothing in it.
func hashList(hashes []kv.BlockHash) *[]kv.BlockHash {
	if len(hashes) == 0 {
		return nil
	}
	list := slices.Clone(hashes)
	return &list
}
