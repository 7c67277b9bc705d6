package radixcache

import (
	"math"
	"math/bits"

	"github.com/coppice-llm/coppice/radixcache/internal/returns"
)

// Session evicts the leaf first that is worth least per token: the best rate at which its like came back so
// far, times the cost to compute a token of it again. What no turn will continue goes before all else: the end
// of a session that was released, and what a later turn of the same session did not continue. See
// [Cache.EndTurn] for sessions, and package returns for the rate. A leaf's like are, of sessions with a name,
// those that took about as many turns, with about as long a pause before the last one; of others, those with
// as many turns; of shared beginnings, those with as many continuations. Requests may also be grouped (Turn.Group).
const Session Policy = 7

// tickBits is the logarithm of the unit of time of the policy Session, a tick: 2^20 ns, about a millisecond. Marks have
// the lower 32 bits of a time, so a leaf that is idle for 52 days is taken for one that was just used.
const tickBits = 20

// turnTicks is the length of an access in ticks, for a cache whose Tick is never called.
const turnTicks = 64

// A mark of the policy Session, from the highest bits on.
//
//	at 32       time of the last use, in ticks
//	worth 10    of the class at the age when it was last looked at
//	class 8     index in sessionRanking.classes
//	flags 4     below
//	forks 4     continuations that were removed while there were others, at most 15
//	turns 6     requests that ended on the path, at most 63
const (
	markTurns  = 0
	markForks  = 6
	markFlags  = 10
	markClass  = 14
	markWorth  = 22
	markAt     = 32
	mostTurns  = 1<<6 - 1
	mostForks  = 1<<4 - 1
	mostWorth  = returns.MaxWorth
	mostClass  = 1 << 8
	flagEnded  = 1 << (markFlags + 0) // a request ended at the node
	flagStale  = 1 << (markFlags + 1) // no turn will continue it
	flagHeld   = 1 << (markFlags + 2) // a named session ends at it
	flagComing = 1 << (markFlags + 3) // a turn of that session is expected now
)

// The kinds of classes.
const (
	kindPlain   = iota // a request without a session ended there
	kindNamed          // a session's last turn ended there
	kindBranch         // the same, of a session that began as a fork of another one
	kindCalling        // a session's last turn ended there, and its answer calls tools
	kindForked         // a session's last turn ended there, and a fork has continued it
	kindShared         // several requests continued it
	kinds
)

// sessionRanking is the policy Session in one cache.
type sessionRanking struct {
	plainRanking
	now     uint64                // in ticks
	timed   bool                  // Tick was called; otherwise the time is the number of accesses
	all     *returns.Class        // has what all kinds have
	kinds   [kinds]*returns.Class // parts of all; the other classes are parts of these
	classes []*returns.Class      // by number; the first ones are the kinds
	byKey   map[uint32]uint8
	kept    returns.Kept // how often a session's next turn continues what its last one left
	learnt  int          // episodes since the latest learning
	lost    []lostLeaf
	missing int // entries of lost in use
}

// lostLeaf is a leaf that was evicted, at which requests without a session ended. If its first page comes back
// below the same node, a request has continued it.
type lostLeaf struct {
	parent NodeID
	gen    uint32 // of parent
	page   uint32 // hash of the leaf's first page
	at     uint32 // ticks: its last use
	class  uint8
	turns  uint8 // 0: the entry is not in use
}

// lostLeaves is the size of the table of lost leaves, a power of two.
const lostLeaves = 1 << 13

// lostAt returns the entry of the table for a leaf: its only place.
func (s *sessionRanking) lostAt(parent NodeID, gen, page uint32) *lostLeaf {
	if s.lost == nil {
		s.lost = make([]lostLeaf, lostLeaves)
	}
	return &s.lost[(uint32(parent)*2654435761^gen*40503^page*2246822519)>>7%lostLeaves]
}

// lose remembers a leaf that is removed. An older one in its place has not come back so far.
func (s *sessionRanking) lose(parent NodeID, gen, page uint32, u *use) {
	if !u.counts() {
		return
	}
	l := s.lostAt(parent, gen, page)
	if l.turns > 0 {
		s.episode(l.class, s.since(l.at), (*returns.Class).Left)
		s.missing--
	}
	*l = lostLeaf{parent, gen, page, uint32(u.mark >> markAt), uint8(u.mark >> markClass), uint8(max(u.mark>>markTurns&mostTurns, 1))}
	s.missing++
}

// regain returns the turns of a lost leaf whose first page comes back, and counts its return. It returns 0 if
// there was none.
func (s *sessionRanking) regain(parent NodeID, gen, page uint32) (turns uint64) {
	if s.missing == 0 {
		return 0
	}
	l := s.lostAt(parent, gen, page)
	if l.turns == 0 || l.parent != parent || l.gen != gen || l.page != page {
		return 0
	}
	turns = uint64(l.turns)
	s.episode(l.class, s.since(l.at), (*returns.Class).Returned)
	l.turns = 0
	s.missing--
	return turns
}

func newSession(Config) ranking {
	s := &sessionRanking{byKey: make(map[uint32]uint8), all: returns.New(nil)}
	for k := range s.kinds {
		s.kinds[k] = returns.NewApart(s.all)
		if k == kindPlain || k == kindShared {
			s.kinds[k] = returns.New(s.all) // may be of any kind of client
		}
		s.classes = append(s.classes, s.kinds[k])
	}
	return s
}

func (*sessionRanking) ranksByAge() bool { return false }

// coarse is the step in which the worths of leaves differ in which no session with a name ends: a factor of 1.2. What
// is learnt of such leaves says less, as each may be of another kind of client; where it says nearly the same of two, the
// older one goes first, as under LRU. It was chosen with priorSeen and broadSeen of package returns on the Mooncake traces of
// bench/results/policies.md.
const coarse = returns.Octave / 4

// rank is 0 for what no turn will continue. Otherwise it is the logarithm of the worth of a token: the node's
// worth plus that of the cost, which grows with the tokens before it as in CostAware.
func (s *sessionRanking) rank(u *use, end int) uint64 {
	if u.mark&(flagStale|flagHeld) == flagStale {
		return 0
	}
	if u.mark&flagComing != 0 {
		return 1<<40 + math.MaxUint32 - u.mark>>markAt // the turn that came first is served first, so its leaf goes last
	}
	cost := bits.Len64(uint64(65536+end)) - 17 // whole doublings, and the rest linearly
	rest := uint64(65536+end)>>cost - 65536
	worth := u.mark>>markWorth&mostWorth + uint64(cost)*returns.Octave + rest*returns.Octave>>16
	if u.mark&flagHeld == 0 {
		worth -= worth % coarse
	}
	return 1 + worth
}

// used records the time, and with it the worth of a thing that was used just now.
func (s *sessionRanking) used(u *use) {
	if !s.timed {
		s.now = u.stamp * turnTicks
	}
	u.mark = u.mark&(1<<markAt-1)&^(flagStale|flagComing) | s.now<<markAt
	s.weigh(u)
}

// weigh sets the worth in a mark to that of its class and its age.
func (s *sessionRanking) weigh(u *use) {
	worth := uint16(mostWorth)
	if u.mark&flagComing != 0 && s.age(u) >= comingTicks {
		u.mark &^= flagComing
	}
	if u.mark&flagComing == 0 {
		worth, _ = s.classes[u.mark>>markClass%mostClass].Worth(s.age(u))
	}
	u.setWorth(worth)
}

// setWorth sets the worth in a mark.
func (u *use) setWorth(worth uint16) {
	u.mark = u.mark&^(mostWorth<<markWorth) | uint64(worth)<<markWorth
}

// classify sets the class in a mark.
func (u *use) classify(class uint8) {
	u.mark = u.mark&^((mostClass-1)<<markClass) | uint64(class)<<markClass
}

// forks returns the continuations that were removed, as the mark counts them.
func (u *use) forks() uint64 { return u.mark >> markForks & mostForks }

// age returns the ticks since the last use.
func (s *sessionRanking) age(u *use) uint32 { return s.since(uint32(u.mark >> markAt)) }

// since returns the ticks since a time, of which at has the lower bits.
func (s *sessionRanking) since(at uint32) uint32 { return uint32(s.now) - at }

// later returns the later time of two marks.
func later(mark, other uint64) uint64 {
	if int32(uint32(mark>>markAt)-uint32(other>>markAt)) < 0 {
		mark = other
	}
	return mark >> markAt
}

// due returns the time in ticks at which the worth of u changes: its age enters the next bin.
func (s *sessionRanking) due(u *use) uint64 {
	used := s.now - uint64(s.age(u))
	if u.mark&flagComing != 0 {
		return used + comingTicks
	}
	_, until := s.classes[0].Worth(s.age(u)) // the steps of all classes are at the same ages
	return until + min(used, math.MaxUint64-until)
}

// comingTicks is how long the end of a session is kept for a turn that was expected: 30 s.
const comingTicks = 30e9 >> tickBits

// absorb lets the parent take over what is known of a child that is removed. A child that was the only way on
// leaves its place to the parent: the parent is now where its requests ended, or as stale. Otherwise the parent
// is a beginning that several requests share; children that were stale do not count for that.
func (s *sessionRanking) absorb(parent, child *use, fork bool) {
	stale := child.mark&(flagStale|flagHeld) == flagStale
	at := later(parent.mark, child.mark)
	forks := parent.forks() + child.forks()
	held := parent.mark & flagHeld
	switch {
	case stale && (fork || held != 0 || forks > 0):
		parent.mark = parent.mark&(1<<markAt-1) | at<<markAt
		s.weigh(parent)
		return
	case fork:
		forks++
	case forks > 0 || held != 0:
	default:
		parent.mark = child.mark & (1<<markAt - 1)
	}
	forks = min(forks, mostForks)
	parent.mark = parent.mark&(1<<markAt-1)&^(mostForks<<markForks) | forks<<markForks | at<<markAt
	if forks > 0 && held == 0 {
		parent.mark &^= flagStale | flagComing
		parent.classify(s.class(kindShared, 0, scale(int(forks)), 0))
	}
	s.weigh(parent)
}

// divide gives the upper half of a node the time of the lower one, and what is known of the path. The requests
// that ended at the node ended in the lower half.
func (s *sessionRanking) divide(lower *use) uint64 {
	upper := lower.mark &^ (flagEnded | flagHeld | flagComing | mostForks<<markForks | mostTurns<<markTurns)
	return upper | max(lower.mark>>markTurns&mostTurns, 1) - 1<<markTurns
}

func (s *sessionRanking) alike(upper, lower *use) bool {
	return upper.stamp <= lower.stamp && upper.mark&(flagHeld|mostForks<<markForks) == 0
}

// join returns the mark of the lower node if a session ends there, and else what absorb would leave in the upper
// one. Whether a session ends in the joined node is up to turns.fused.
func (s *sessionRanking) join(upper, lower *use) uint64 {
	joined, at := *upper, later(upper.mark, lower.mark)
	if lower.mark&flagHeld != 0 {
		joined.mark = lower.mark
	} else {
		s.absorb(&joined, lower, false)
	}
	joined.mark = joined.mark&(1<<markAt-1) | at<<markAt
	s.weigh(&joined)
	return joined.mark
}

// counts reports whether it is learnt when u is used again, or that it is not: requests without a session ended
// there, or several continued it.
func (u *use) counts() bool {
	return u.mark&(flagHeld|flagStale) == 0 && u.mark&(flagEnded|mostForks<<markForks) != 0
}

// returned counts a request that continues where u's requests ended.
func (s *sessionRanking) returned(u *use) {
	if u.counts() {
		s.episode(uint8(u.mark>>markClass), s.age(u), (*returns.Class).Returned)
	}
}

// episode counts the end of an episode in a class and in those that are broader.
func (s *sessionRanking) episode(class uint8, age uint32, end func(*returns.Class, uint32)) {
	for c := s.classes[class]; c != nil; c = c.Broader() {
		end(c, age)
	}
	s.learnt++
}

// idle counts a thing that is idle in its class and in those that are broader.
func (s *sessionRanking) idle(class uint8, age uint32) {
	for c := s.classes[class]; c != nil; c = c.Broader() {
		c.Idle(age)
	}
}

// class returns the number of the class of a kind, a group and two scales. When there are too many classes, it
// returns the kind.
func (s *sessionRanking) class(kind int, group uint8, first, second uint32) uint8 {
	key := uint32(kind)<<24 | uint32(group)<<16 | first<<8 | second
	id, known := s.byKey[key]
	if !known {
		if len(s.classes) == mostClass {
			return uint8(kind)
		}
		id = uint8(len(s.classes))
		s.classes = append(s.classes, returns.New(s.kinds[kind]))
		s.byKey[key] = id
	}
	return id
}

// scale rounds a number to doublings: 0, 1, 2, 3 to 4, 5 to 8 and so on are 0 to 7.
func scale(n int) uint32 {
	if n <= 1 {
		return uint32(max(n, 0))
	}
	return min(uint32(bits.Len(uint(n-1)))+1, 7)
}

// pause rounds a pause between two turns: none, up to 8, 64 s, or more.
func pause(ticks uint32) uint32 {
	switch seconds := uint64(ticks) << tickBits / 1e9; {
	case seconds < 8:
		return 1
	case seconds < 64:
		return 2
	}
	return 3
}
