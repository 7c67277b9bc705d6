package scheduler

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool/tiering"
	"github.com/coppice-llm/coppice/radixcache"
)

// addTurn adds a request that is a turn of a session.
func (h *tierRig) addTurn(id RequestID, session string, prompt []kv.Token, maxTokens int) {
	h.t.Helper()
	if err := h.s.Add(h.now, Request{ID: id, Session: session, Prompt: prompt, MaxTokens: maxTokens}); err != nil {
		h.t.Fatal(err)
	}
}

// TestExpectSessionFetches checks that what the last turn of a session left is fetched before the expected turn
// comes, not earlier than expectLead before it, and is given up if the turn stays away.
func TestExpectSessionFetches(t *testing.T) {
	for _, c := range []struct {
		in, wait time.Duration
		fetched  bool
	}{
		{5 * time.Second, 0, true},
		{time.Minute, 0, false},
		{time.Minute, 51 * time.Second, true},
		{0, 31 * time.Second, false}, // given up
	} {
		h := newTierRig(t, tiering.Config{}, 16, 1)
		h.addTurn(1, "a", seq(0, 64), 1)
		h.run()
		h.add(2, seq(1, 240), 1)
		h.run()
		ref := SessionRef{Name: "a"}
		if err := h.s.ExpectSession(h.now, ref, c.in); err != nil {
			t.Fatal(err)
		}
		if at, some := h.s.NextExpiry(); !some || at < h.now {
			t.Errorf("a turn in %v: the next expiry is %v, %v", c.in, at, some)
		}
		h.now += c.wait
		h.s.Expire(h.now, nil)
		for range 4 {
			h.step()
		}
		if c.wait > 30*time.Second && !c.fetched {
			h.add(3, seq(2, 240), 1) // no turn keeps the pages
			h.run()
		}
		h.addTurn(4, "a", seq(0, 80), 1)
		moves := h.run()
		if reads := slices.ContainsFunc(moves, func(m string) bool { return strings.HasPrefix(m, "read") }); reads == c.fetched {
			t.Errorf("a turn in %v, after %v: the turn itself fetches: %v", c.in, c.wait, reads)
		}
		if len(h.s.sessions.expected) > 0 && c.fetched {
			t.Errorf("a turn in %v came and is still expected", c.in)
		}
		if n := h.s.cache.Stats().ProtectedPages; n != 0 && c.fetched {
			t.Errorf("a turn in %v: %d pages are pinned after it", c.in, n)
		}
	}
}

// TestExpectedPrefixGivesWay checks that a request that needs the pages of a fetched prefix gets them, and that
// Drain gets all pages.
func TestExpectedPrefixGivesWay(t *testing.T) {
	h := newTierRig(t, tiering.Config{}, 16, 1)
	h.addTurn(1, "a", seq(0, 64), 1)
	h.run()
	h.add(2, seq(1, 240), 1)
	h.run()
	if err := h.s.ExpectSession(h.now, SessionRef{Name: "a"}, time.Second); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		h.step()
	}
	if n := h.s.cache.Stats().ProtectedPages; n != 4 {
		t.Fatalf("%d pages are kept for the turn, want 4", n)
	}
	h.add(3, seq(2, 240), 1)
	h.run()
	h.s.Fail(h.now, errors.New("the end"), nil)
	if pages := h.s.Drain(nil); len(pages) != 16 {
		t.Errorf("%d pages of 16 came back", len(pages))
	}
}

// TestPinSessionMoves checks that a session's pin moves with its turns and ends with its release.
func TestPinSessionMoves(t *testing.T) {
	b := newBed(t, Config{PinnedTokens: 16}, 4, 40)
	turn := func(id RequestID, prompt []kv.Token) {
		t.Helper()
		if err := b.s.Add(b.now, Request{ID: id, Session: "a", Tenant: "t", Prompt: prompt, MaxTokens: 1}); err != nil {
			t.Fatal(err)
		}
		b.run()
	}
	ref := SessionRef{Tenant: "t", Name: "a"}
	if _, err := b.s.PinSession(b.now, ref, 0); !errors.Is(err, ErrNoSession) {
		t.Errorf("before the first turn: %v", err)
	}
	turn(1, seq(0, 8))
	if n, err := b.s.PinSession(b.now, ref, 0); n != 8 || err != nil {
		t.Errorf("%d tokens are pinned, want 8: %v", n, err)
	}
	turn(2, seq(0, 13))
	if n, tokens := b.s.Cache().PinnedPrefixes(); n != 1 || tokens != 12 {
		t.Errorf("after the next turn %d prefixes of %d tokens are pinned, want 1 of 12", n, tokens)
	}
	turn(3, seq(0, 30))
	if n, tokens := b.s.Cache().PinnedPrefixes(); n != 1 || tokens != 16 {
		t.Errorf("beyond the budget %d prefixes of %d tokens are pinned, want 1 of 16", n, tokens)
	}
	if _, err := b.s.PinSession(b.now, ref, 0); !errors.Is(err, radixcache.ErrPinBudget) {
		t.Errorf("a pin beyond the budget: %v", err)
	}
	if err := b.s.ReleaseSession(ref); err != nil {
		t.Error(err)
	}
	if n, _ := b.s.Cache().PinnedPrefixes(); n != 0 {
		t.Errorf("%d prefixes are pinned after the release", n)
	}
	for _, err := range []error{b.s.ReleaseSession(ref), b.s.UnpinSession(ref), b.s.ExpectSession(b.now, ref, 0), b.s.AwaitTools(ref, "run")} {
		if !errors.Is(err, ErrNoSession) {
			t.Errorf("after the release: %v", err)
		}
	}
}

// TestSessionBounds checks the limits of names and times, and that the least recently used session is forgotten.
func TestSessionBounds(t *testing.T) {
	b := newBed(t, Config{}, 4, 40)
	long := strings.Repeat("x", MaxSessionName)
	if err := b.s.Add(b.now, Request{ID: 1, Session: long + "x", Prompt: seq(0, 4)}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a name of %d bytes: %v", len(long)+1, err)
	}
	for _, ref := range []SessionRef{{}, {Name: long + "x"}} {
		if err := b.s.ReleaseSession(ref); !errors.Is(err, ErrInvalid) {
			t.Errorf("a name of %d bytes: %v", len(ref.Name), err)
		}
	}
	if err := b.s.Add(b.now, Request{ID: 2, Session: long, Prompt: seq(0, 4), MaxTokens: 1}); err != nil {
		t.Fatal(err)
	}
	b.run()
	for _, in := range []time.Duration{-1, maxExpectation + 1} {
		if err := b.s.ExpectSession(b.now, SessionRef{Name: long}, in); !errors.Is(err, ErrInvalid) {
			t.Errorf("a turn in %v: %v", in, err)
		}
	}
	for i := range maxSessions {
		b.s.useSession(SessionRef{Name: string(rune(i + 0x4e00))})
	}
	if n := len(b.s.sessions.byRef); n != maxSessions || b.s.sessions.byRef[SessionRef{Name: long}] != nil {
		t.Errorf("%d sessions are remembered, the first one too: %v", n, b.s.sessions.byRef[SessionRef{Name: long}] != nil)
	}
}

// TestSessionPolicyEvictsWhatNoTurnContinues checks that under the policy Session a branch that a session has left,
// and a session that was released, make room before an older session that may come back.
func TestSessionPolicyEvictsWhatNoTurnContinues(t *testing.T) {
	for _, policy := range []radixcache.Policy{radixcache.LRU, radixcache.Session} {
		for _, release := range []bool{false, true} {
			b := newBed(t, Config{Eviction: policy}, 4, 12)
			turn := func(id RequestID, session string, prompt []kv.Token) int {
				t.Helper()
				if err := b.s.Add(b.now, Request{ID: id, Session: session, Prompt: prompt, MaxTokens: 1}); err != nil {
					t.Fatal(err)
				}
				return b.run()[id].CachedTokens
			}
			turn(1, "old", seq(0, 9))
			turn(2, "b", seq(30, 17))
			need := 16 // tokens: more than the pages that are left, less than those and what b leaves
			if release {
				need = 30
				if err := b.s.ReleaseSession(SessionRef{Name: "b"}); err != nil {
					t.Fatal(err)
				}
			} else {
				turn(3, "b", seq(60, 9)) // another history
			}
			turn(4, "c", seq(80, need))
			kept := policy == radixcache.Session
			if cached := turn(5, "old", seq(0, 9)); (cached > 0) != kept {
				t.Errorf("%v, released %v: the old session finds %d tokens", policy, release, cached)
			}
		}
	}
}
