package radixcache

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// journal collects events until they are taken.
type journal struct{ events []kv.Event }

// add appends an event.
func (j *journal) add(ev kv.Event) { j.events = append(j.events, ev) }

// withdraw adds a Removed event for blocks of a namespace. If the last event is a Removed
// event of the same namespace, it adds the hashes to that event, as an eviction removes
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

// take returns dst with the events appended, and forgets them: their slices belong to the
// caller.
func (j *journal) take(dst []kv.Event) []kv.Event {
	dst = append(dst, j.events...)
	clear(j.events)
	j.events = j.events[:0]
	return dst
}

// Dump returns dst with Stored events appended for all blocks that the tree holds, parents
// before children, so a router that lost events can start over. Block.Local is 0 in these
// events. Dump copies the tokens of all blocks. Without Config.Events it appends nothing.
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

// hashList returns a pointer to a copy of hashes, or nil if there are none, as node.hashes
// needs.
func hashList(hashes []kv.BlockHash) *[]kv.BlockHash {
	if len(hashes) == 0 {
		return nil
	}
	list := slices.Clone(hashes)
	return &list
}
