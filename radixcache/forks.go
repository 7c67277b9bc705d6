package radixcache

import (
	"math"

	"github.com/coppice-llm/coppice/radixcache/internal/returns"
)

// This file has what the policy [Session] knows of sessions beside the pauses between their turns: which of them wait
// for tools, which were forked, and how much several of them together make of a node.

// mostEnds bounds the sessions of a node that are looked at, of those that end there the latest ones.
const mostEnds = 16

// AwaitTools notes that the answer of a session's last turn calls tools: the next turn comes when the tools have run,
// without a user. tools is any number for the kind of tools; when such turns come is learnt for each number apart. Call it after
// EndTurn and before BeginTurn. It only matters under the policy [Session]. Cost: O(1).
func (c *Cache) AwaitTools(id SessionID, tools uint8) {
	e := c.turns.ends[id]
	if e == nil || e.running {
		return
	}
	e.class = c.turns.by.class(kindCalling, e.group, uint32(tools), e.pause)
	c.turns.reclassify(c, e)
	c.verify("AwaitTools")
}

// reclassify writes the class and the time of e into the mark of the node where the session ends.
func (ts *turns) reclassify(c *Cache, e *turnEnd) {
	if e.node == Root {
		return
	}
	u := &c.nodes[e.node].use
	u.classify(e.class)
	u.mark = u.mark&(1<<markAt-1) | uint64(e.at)<<markAt
	ts.by.weigh(u)
	c.rerank(e.node)
}

// forked is called when a request begins that continues a node. If it continues what the last turn of another session left, then
// it is a fork of that session, such as a sub-agent. What the session left was of use then, and the session's own next turn may
// have to wait for the fork: when such turns come is learnt apart.
func (ts *turns) forked(c *Cache, at NodeID) {
	for _, e := range ts.near(c, at) {
		if e.running || e.forked {
			continue
		}
		ts.by.episode(e.class, ts.by.since(e.at), (*returns.Class).Returned)
		e.forked, e.at = true, uint32(ts.by.now)
		e.class = ts.by.class(kindForked, e.group, 0, 0)
		ts.reclassify(c, e)
	}
}

// branches reports whether a session that begins with the path to a node is a fork, that is, whether it begins with what a
// session left that was forked. A few nodes of the path are looked at, from its end.
func (ts *turns) branches(c *Cache, at NodeID) bool {
	for n := 0; n < 4 && at != Root; n++ {
		for _, e := range ts.near(c, at) {
			if e.forked {
				return true
			}
		}
		at = c.nodes[at].parent
	}
	return false
}

// near returns the sessions that ended at a node or a little further on, in one of its children: the node has at
// least seven eighths of what their last turns left. The rest may be reasoning, which a fork leaves out as a next turn
// does. The slice is valid until the next call.
func (ts *turns) near(c *Cache, at NodeID) []*turnEnd {
	n := &c.nodes[at]
	ts.close = ts.appendNear(ts.close[:0], at, n.end())
	if n.fork == nil { // else it is a beginning that many have in common
		for _, k := range n.few[:n.count] {
			ts.close = ts.appendNear(ts.close, k.id, n.end())
		}
	}
	return ts.close
}

// appendNear appends the sessions that end in a node, of which at least seven eighths are the tokens up to shared.
func (ts *turns) appendNear(dst []*turnEnd, at NodeID, shared int) []*turnEnd {
	e := ts.firstIn(at)
	for n := 0; e != nil && n < mostEnds; e, n = e.next, n+1 {
		if (int(e.end)-shared)*8 <= int(e.end) {
			dst = append(dst, e)
		}
	}
	return dst
}

// firstIn returns the first session in the list of those that end in a node; nil if there is none.
func (ts *turns) firstIn(id NodeID) *turnEnd {
	if int(id) >= len(ts.first) {
		return nil
	}
	return ts.first[id]
}

// continues reports whether the path to a node goes through old, in which a session's last turn had ended after a number of tokens, or
// has at least half of these tokens: then the session has gone on, maybe without its reasoning, and has not replaced
// its history.
func (ts *turns) continues(c *Cache, at, old NodeID, end int) bool {
	from := old
	for at != from && at != Root && from != Root {
		if c.nodes[at].start >= c.nodes[from].start {
			at = c.nodes[at].parent
		} else {
			from = c.nodes[from].parent
		}
	}
	return at == old || at == from && at != Root && c.nodes[at].end()*2 >= end
}

// addUp sets the worth of a node in which sessions end. What they left may be too long to be continued. Where several
// end, because what they had of their own was evicted, each may come back, so their rates add up.
func (ts *turns) addUp(id NodeID, u *use) {
	e := ts.firstIn(id)
	if e == nil || u.mark&flagComing != 0 {
		return
	}
	own, _ := ts.by.classes[u.mark>>markClass%mostClass].Worth(ts.by.age(u))
	if e.next == nil && u.forks() == 0 {
		u.setWorth(own - min(own, ts.by.kept.Cost(e.length)))
		return
	}
	sum := 0.0
	for n := 0; e != nil && n < mostEnds; e, n = e.next, n+1 {
		if !e.running {
			worth, _ := ts.by.classes[e.class].Worth(ts.by.since(e.at))
			sum += math.Exp2((float64(worth) - float64(ts.by.kept.Cost(e.length))) / returns.Octave)
		}
	}
	worth := uint16(min(returns.Octave*math.Log2(max(sum, 1)), mostWorth))
	if u.forks() > 0 {
		worth = max(worth, own)
	}
	u.setWorth(worth)
}
