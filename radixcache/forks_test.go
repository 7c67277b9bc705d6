package radixcache

import (
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// seconds plays a clock for a sessionTree.
func (s *sessionTree) seconds(n int) { s.Tick(time.Duration(n) * time.Second) }

// history gives the policy something to learn from: sessions that call tools come back after 5 s, and others never.
func (s *sessionTree) history() (now int) {
	now = 1
	for i := range 400 {
		tokens := []kv.Token{kv.Token(10_000 + 4*i), 1, 2}
		id := SessionID(1000 + i)
		s.seconds(now)
		s.turn(Turn{Session: id}, tokens...)
		if i%2 == 0 {
			s.AwaitTools(id, 1)
			now += 5
			s.seconds(now)
			s.turn(Turn{Session: id}, append(tokens, 3)...)
		}
		now += 60
		s.seconds(now)
		s.ForgetTurns(id)
		s.Evict(s.Stats().Pages, nil)
	}
	return now
}

// TestAwaitTools: a session whose answer calls tools is kept longer than one that began later and called none.
func TestAwaitTools(t *testing.T) {
	for _, told := range []bool{false, true} {
		s := newSessionTree(t)
		now := s.history()
		s.next = 0
		s.turn(Turn{Session: 1}, 1, 2, 3)
		if told {
			s.AwaitTools(1, 1)
		}
		s.seconds(now + 3)
		s.turn(Turn{Session: 2}, 7, 8, 9)
		want := kv.PageID(2) // the last page of the older one, as nothing tells the two apart
		if told {
			want = 5
		}
		if freed := s.Evict(1, nil); len(freed) != 1 || freed[0] != want {
			t.Errorf("told of the call: %v: page %v made room, want %d", told, freed, want)
		}
		s.AwaitTools(99, 1) // of an unknown session it says nothing
	}
}

// TestForkIsKnown: a session that continues the whole of another one is its fork, and one that shares only its beginning is
// not.
func TestForkIsKnown(t *testing.T) {
	s := newSessionTree(t)
	s.seconds(1)
	long := make([]kv.Token, 40)
	for i := range long {
		long[i] = kv.Token(i)
	}
	s.turn(Turn{Session: 1}, append(long[:38:38], 90, 91)...) // two tokens of reasoning, which a fork leaves out
	s.seconds(2)
	s.turn(Turn{Session: 2}, append(long[:10:10], 70, 71)...)
	if e := s.turns.ends[1]; e.forked || s.turns.ends[2].branch {
		t.Error("a session with another beginning counts as a fork")
	}
	s.turn(Turn{Session: 3}, append(long[:38:38], 80, 81)...)
	if e := s.turns.ends[1]; !e.forked || !s.turns.ends[3].branch {
		t.Errorf("session 1 is forked: %v, session 3 is a fork: %v", e.forked, s.turns.ends[3].branch)
	}
	s.seconds(9)
	s.turn(Turn{Session: 1}, long...)
	if s.turns.ends[1].forked || s.turns.ends[1].branch {
		t.Error("after its next turn session 1 still counts as forked, or as a fork")
	}
}

// TestReplacedHistory: sessions that replace their history at a length are evicted at that length before shorter ones that are
// older.
func TestReplacedHistory(t *testing.T) {
	s := newSessionTree(t)
	text := func(session, n int) []kv.Token {
		all := make([]kv.Token, n)
		for i := range all {
			all[i] = kv.Token(session*1000 + i)
		}
		return all
	}
	now := 0
	for i := range 200 {
		id := SessionID(i + 1)
		for _, n := range []int{10, 20, 40} {
			now += 2
			s.seconds(now)
			s.turn(Turn{Session: id}, text(i, n)...)
		}
		now += 2
		s.seconds(now)
		s.turn(Turn{Session: id}, text(500+i, 3)...)
		s.ReleaseTurns(id)
		s.Evict(s.Stats().Pages, nil)
	}
	s.turn(Turn{Session: 1001}, text(900, 20)...)
	now++
	s.seconds(now)
	s.turn(Turn{Session: 1002}, text(901, 20)...)
	s.turn(Turn{Session: 1002}, text(901, 40)...)
	s.Evict(1, nil)
	if n := s.Match(Key{Tokens: text(900, 20)}).Tokens; n != 20 {
		t.Errorf("the session of 20 tokens has %d left: what will be replaced did not go first", n)
	}
}
