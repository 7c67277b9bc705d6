package radixcache

import (
	"math"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache/internal/returns"
)

// Turn is a request that ends, as EndTurn takes it.
type Turn struct {
	Session SessionID // 0: the request names no session
	Group   uint8     // requests of a group come back alike; 0 if nothing is known
}

// turns knows where the last turn of each session ended. It follows the tree: when a node is split, joined or
// removed, the ends in it move. Only the policy [Session] has it.
type turns struct {
	by    *sessionRanking // nil: another policy
	ends  map[SessionID]*turnEnd
	first []*turnEnd // by NodeID: the ends in a node, in a list
	due   leafHeap   // leaves by the time at which their worth changes, in ticks
	close []*turnEnd // scratch of near
}

// turnEnd is where a session's last turn ended.
type turnEnd struct {
	node       NodeID   // Root: nothing of it is left
	end        int32    // number of tokens from the root
	length     uint16   // the same, as returns.Length has it
	prev, next *turnEnd // others in the node
	class      uint8
	group      uint8  // Turn.Group of its last turn
	pause      uint32 // before its last turn, as the function pause has it; 0: it was the first
	turns      int
	at         uint32 // ticks
	running    bool   // a turn has begun
	branch     bool   // the session began as a fork of another one
	forked     bool   // another request has continued what the last turn left; at is the time of that
}

// Tick tells the policy [Session] the time since some fixed moment; it never falls. Call it once per step.
// Without it the policy takes the number of accesses for the time.
func (c *Cache) Tick(now time.Duration) {
	if t := c.turns.by; t != nil {
		t.now, t.timed = max(t.now, uint64(now>>tickBits)), true
	}
}

// BeginTurn notes that a turn of a session has come: the policy [Session] learns from its pause, and keeps what
// the last turn left until the turn ends, for 30 s at most. Under other policies it does nothing.
func (c *Cache) BeginTurn(id SessionID) {
	t := c.turns.by
	e := c.turns.ends[id]
	if t == nil || e == nil || e.running {
		return
	}
	age := t.since(e.at)
	t.episode(e.class, age, (*returns.Class).Returned)
	e.running, e.pause = true, pause(age)
	c.coming(e)
	c.verify("BeginTurn")
}

// ExpectTurn notes that a turn of a session comes within 30 s: what its last turn left is evicted last until
// then. It only matters under the policy [Session].
func (c *Cache) ExpectTurn(id SessionID) {
	if e := c.turns.ends[id]; e != nil {
		c.coming(e)
		c.verify("ExpectTurn")
	}
}

// coming marks the node at which a session ends.
func (c *Cache) coming(e *turnEnd) {
	if e.node == Root {
		return
	}
	u := &c.nodes[e.node].use
	u.mark = u.mark&(1<<markAt-1)&^flagStale | flagComing | c.turns.by.now<<markAt
	c.turns.by.weigh(u)
	c.rerank(e.node)
}

// copied is called when a request has pinned the node before a tail leaf and is about to copy the leaf. Sessions whose
// turn has begun end at that node from now on: no other request can use the leaf, as the turn will replace it.
func (ts *turns) copied(c *Cache, tail, pinned NodeID) {
	if int(tail) >= len(ts.first) || ts.first[tail] == nil || !c.isTail(&c.nodes[tail]) {
		return
	}
	for e := ts.first[tail]; e != nil; {
		next := e.next
		if e.running {
			ts.move(c, e, pinned)
			e.end = int32(c.nodes[pinned].end())
		}
		e = next
	}
	ts.deserted(c, tail)
}

// EndTurn notes that a request has ended whose tokens are in the tree: those of handle, the node that Extend
// returned, and after them tail, which may have a tail leaf. Call it before handle is unpinned. If the request
// is a turn of a session, then the session ends there from now on, and no longer where its turn before ended.
// If that is a leaf, no request will continue it: the policy [Session] evicts it first. Under other policies
// EndTurn does nothing. Cost: O(1).
func (c *Cache) EndTurn(handle NodeID, tail []kv.Token, turn Turn) {
	t := c.turns.by
	if t == nil || handle == Root {
		return
	}
	at := c.live(handle, "EndTurn")
	end, node := at.end()+len(tail), handle
	if len(tail) > 0 {
		place, _ := c.find(handle, tail)
		if kid := c.kidAt(handle, place); kid != Root && c.isTail(&c.nodes[kid]) && c.nodes[kid].end() == end {
			node = kid
		}
	}
	taken := min(int(at.mark>>markTurns&mostTurns)+1, mostTurns)
	class := t.class(kindPlain, turn.Group, scale(taken), 0)
	if turn.Session != 0 {
		e := c.turns.ends[turn.Session]
		if e == nil {
			e = &turnEnd{node: Root, branch: c.turns.branches(c, handle)}
			c.turns.ends[turn.Session] = e
		}
		e.turns++
		e.group = turn.Group
		kind := kindNamed
		if e.branch {
			kind = kindBranch
		}
		e.class = t.class(kind, turn.Group, scale(e.turns), e.pause)
		e.at, e.running, e.forked, class = uint32(t.now), false, false, e.class
		old := e.node
		if old != Root {
			t.kept.Came(e.length, c.turns.continues(c, handle, old, int(e.end)))
		}
		c.turns.move(c, e, node)
		e.end, e.length = int32(end), returns.Length(end)
		if old != node {
			c.turns.deserted(c, old)
		}
	}
	c.ended(node, class, taken, flagEnded)
	if handle != node {
		ended := uint64(flagEnded)
		if turn.Session != 0 { // its end is the tail, and its return counts by its name
			ended = 0
		}
		c.ended(handle, class, taken, ended)
	}
	c.turns.learn(c)
	c.verify("EndTurn")
}

// ended writes into the mark of a node that a request has ended there or in its tail. A beginning that several
// requests continued stays one.
func (c *Cache) ended(id NodeID, class uint8, taken int, ended uint64) {
	t, u := c.turns.by, &c.nodes[id].use
	forks := u.forks()
	if forks > 0 && u.mark&flagHeld == 0 {
		class = t.class(kindShared, 0, scale(int(forks)), 0)
	}
	u.mark = u.mark&flagHeld | ended | forks<<markForks | t.now<<markAt | uint64(class)<<markClass | uint64(taken)<<markTurns
	t.weigh(u)
	c.rerank(id)
}

// ReleaseTurns notes that a session takes no further turn: what only it would have continued is evicted first.
func (c *Cache) ReleaseTurns(id SessionID) {
	e := c.turns.ends[id]
	if e == nil {
		return
	}
	old := e.node
	c.turns.move(c, e, Root)
	delete(c.turns.ends, id)
	c.turns.deserted(c, old)
	c.verify("ReleaseTurns")
}

// ForgetTurns forgets a session. What it has left keeps its worth.
func (c *Cache) ForgetTurns(id SessionID) {
	e := c.turns.ends[id]
	if e == nil {
		return
	}
	t := c.turns.by
	if !e.running {
		t.episode(e.class, t.since(e.at), (*returns.Class).Left)
	}
	old := e.node
	c.turns.move(c, e, Root)
	delete(c.turns.ends, id)
	if old != Root {
		c.rerank(old)
	}
	c.verify("ForgetTurns")
}

// deserted marks a leaf as stale if no session ends in it.
func (ts *turns) deserted(c *Cache, id NodeID) {
	if id == Root || ts.first[id] != nil {
		return
	}
	if n := &c.nodes[id]; n.isLeaf() {
		n.mark |= flagStale
		c.rerank(id)
	}
}

// move moves the end e to a node, or out of the tree if it is Root.
func (ts *turns) move(c *Cache, e *turnEnd, to NodeID) {
	ts.unlink(&c.slab, e)
	ts.link(&c.slab, e, to)
}

// link puts e into the list of a node.
func (ts *turns) link(s *slab, e *turnEnd, to NodeID) {
	if e.node = to; to == Root {
		return
	}
	for int(to) >= len(ts.first) {
		ts.first = append(ts.first, nil)
	}
	e.prev, e.next = nil, ts.first[to]
	if e.next != nil {
		e.next.prev = e
	}
	ts.first[to] = e
	s.nodes[to].mark |= flagHeld
}

// unlink takes e out of the list of its node.
func (ts *turns) unlink(s *slab, e *turnEnd) {
	if e.node == Root {
		return
	}
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		ts.first[e.node] = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	}
	if ts.first[e.node] == nil {
		s.nodes[e.node].mark &^= flagHeld | flagComing
	}
	e.node, e.prev, e.next = Root, nil, nil
}

// learn brings the worths up to date once there were enough episodes that looking at all that is idle
// now costs little for each.
func (ts *turns) learn(c *Cache) {
	t := ts.by
	if t.learnt < max(128, (len(ts.due.Items)+len(ts.ends)+t.missing)/4, len(t.classes)/2) {
		return
	}
	t.learnt = 0
	for _, k := range ts.due.Items {
		if u := &c.nodes[k.id].use; u.counts() {
			t.idle(uint8(u.mark>>markClass), t.age(u))
		}
	}
	if t.missing > 0 {
		for i := range t.lost {
			if l := &t.lost[i]; l.turns > 0 {
				t.idle(l.class, t.since(l.at))
			}
		}
	}
	for _, e := range ts.ends { // a sum, in any order
		if !e.running {
			t.idle(e.class, t.since(e.at))
		}
	}
	t.all.Learn()
	for _, class := range t.classes { // the kinds come first
		class.Learn()
	}
}

// turnsBefore returns the number of turns that a new leaf below parent continues: those that ended at parent, if
// the leaf is the first to go on from there, or those of a lost leaf that comes back. tokens are the leaf's.
func (t *tree) turnsBefore(parent NodeID, tokens []kv.Token) uint64 {
	p := &t.nodes[parent]
	turns := t.turns.by.regain(parent, p.gen, hashPage(tokens, t.cfg.PageTokens))
	if alone := p.isLeaf() || p.count == 1 && p.fork == nil && t.isTail(&t.nodes[p.few[0].id]); alone {
		turns = max(turns, p.mark>>markTurns&mostTurns)
	}
	return turns
}

// superseded takes a tail leaf, which a longer run replaces, out of what is learnt. Sessions that end in it end
// at its parent from now on.
func (t *tree) superseded(id NodeID) {
	if t.turns.by != nil {
		n := &t.nodes[id]
		t.turns.pass(&t.slab, id, n.parent, math.MaxInt32)
		n.mark |= flagStale
	}
}

// pass moves the ends in a node that goes away to another one: those up to a number of tokens.
func (ts *turns) pass(s *slab, from, to NodeID, upTo int) {
	if int(from) >= len(ts.first) {
		return
	}
	if to != Root && s.nodes[to].flags&isRoot != 0 {
		s.nodes[to].mark &^= flagHeld | flagComing // absorbed from from, whose ends are given up
		to = Root
	}
	for e := ts.first[from]; e != nil; {
		next := e.next
		if int(e.end) <= upTo {
			ts.unlink(s, e)
			ts.link(s, e, to)
			if u := &s.nodes[to].use; to != Root && u.forks() == 0 {
				u.classify(e.class)
			}
		}
		e = next
	}
}

// fused moves the ends in a node to the one that takes it over, whose mark may be the node's.
func (ts *turns) fused(s *slab, from, to NodeID) {
	if ts.by == nil {
		return
	}
	ts.pass(s, from, to, math.MaxInt32)
	if n := &s.nodes[to]; int(to) >= len(ts.first) || ts.first[to] == nil {
		n.mark &^= flagHeld | flagComing
	} else {
		n.mark |= flagHeld
	}
}

// turns checks that each end of a session is in the list of its node, which is marked as held, and that the
// heap by due time has the leaves' present ones.
func (w *walk) turns() {
	c, listed := w.c, 0
	ts := &c.turns
	if ts.by == nil {
		if ts.ends != nil || ts.first != nil || len(ts.due.Items) > 0 {
			failf("the ends of %d sessions are kept under the policy %v", len(ts.ends), c.cfg.Policy)
		}
		return
	}
	for id := range c.nodes {
		var first *turnEnd
		if id < len(ts.first) {
			first = ts.first[id]
		}
		n := &c.nodes[id]
		if held := n.mark&flagHeld != 0; n.space != nil && n.flags&isRoot == 0 && held != (first != nil) || first != nil && n.space == nil {
			failf("node %d is marked as held: %v, and has ends: %v", id, held, first != nil)
		}
		var prev *turnEnd
		for e := first; e != nil; prev, e = e, e.next {
			if listed++; e.node != NodeID(id) || e.prev != prev || listed > len(ts.ends) {
				failf("the end at node %d, token %d is in the list of node %d", e.node, e.end, id)
			}
		}
	}
	for _, e := range ts.ends { // a sum, in any order
		listed -= count(e.node != Root)
	}
	if listed != 0 {
		failf("%d more ends are in lists than say so", listed)
	}
	for i, k := range ts.due.Items {
		n := &c.nodes[k.id]
		if due := ts.by.due(&n.use); k.key > due || k.stamp != n.stamp || int(c.places[byDue][k.id]) != i || i > 0 && k.Before(ts.due.Items[(i-1)/2]) {
			failf("entry %d by due time is %+v, the worth of the node of stamp %d changes at %d", i, k, n.stamp, due)
		}
	}
}
