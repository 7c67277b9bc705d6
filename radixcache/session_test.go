package radixcache

import (
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// sessionTree is a tree under the policy Session, with small pages.
type sessionTree struct {
	*Cache
	next kv.PageID
}

func newSessionTree(t *testing.T) *sessionTree {
	return &sessionTree{Cache: emptyCache(t, Config{PageTokens: 1, Policy: Session})}
}

// turn serves a request with these tokens, as a scheduler does, and returns the node at which it ends.
func (s *sessionTree) turn(turn Turn, tokens ...kv.Token) NodeID {
	s.BeginTurn(turn.Session)
	key := Key{Tokens: tokens}
	m := s.Match(key)
	pages := s.AppendPages(m, nil)
	handle := s.Pin(m)
	for len(pages)*s.cfg.PageTokens < len(tokens) {
		pages = append(pages, s.next)
		s.next++
	}
	handle, _ = s.Extend(handle, key, pages, nil)
	s.EndTurn(handle, nil, turn)
	s.Unpin(handle)
	return handle
}

// TestJoinedEndStaysReleased: what a released session left goes first, also after it was joined with the run
// before it, at which an earlier request ended.
func TestJoinedEndStaysReleased(t *testing.T) {
	s := newSessionTree(t)
	s.Tick(time.Second)
	s.turn(Turn{Session: 1}, 90, 91) // the class of the second session is older than that of the group
	upper := s.turn(Turn{Group: 1}, 1, 2)
	lower := s.turn(Turn{Session: 2}, 1, 2, 3, 4)
	s.ReleaseTurns(2)
	if s.nodes[upper].mark <= s.nodes[lower].mark {
		t.Fatal("the upper node's mark is not the higher one: nothing is shown")
	}
	s.join(upper, false)
	s.verify("a join")
	s.turn(Turn{Session: 3}, 80, 81)
	if freed := s.Evict(1, nil); len(freed) != 1 || freed[0] != 5 {
		t.Errorf("page %v made room, want page 5, the last one of the released session", freed)
	}
}

// TestCopiedTail: when a turn copies the tail at which its session ended, the tail makes room before what another session left.
func TestCopiedTail(t *testing.T) {
	s := &sessionTree{Cache: emptyCache(t, Config{PageTokens: 2, Policy: Session})}
	s.Tick(time.Second)
	s.turn(Turn{Session: 2}, 90, 91)
	handle, _ := s.Extend(Root, Key{Tokens: []kv.Token{1, 2, 3}}, []kv.PageID{7, 8}, nil)
	s.EndTurn(handle, []kv.Token{3}, Turn{Session: 1})
	s.Unpin(handle)
	s.Tick(time.Minute)
	s.BeginTurn(1)
	m := s.Match(Key{Tokens: []kv.Token{1, 2, 3, 4}})
	if m.Partial.Tokens != 1 {
		t.Fatalf("the match %+v does not end in the tail: nothing is shown", m)
	}
	s.Pin(m)
	if freed := s.Evict(1, nil); len(freed) != 1 || freed[0] != 8 {
		t.Errorf("page %v made room, want page 8, that of the tail", freed)
	}
}
