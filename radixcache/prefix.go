package radixcache

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrPinBudget reports that a prefix would exceed [Config.PinnedTokens]: unpin another
// prefix, or raise PinnedTokens.
var ErrPinBudget = errors.New("radixcache: budget for pinned prefixes is used up")

// ErrNotCached reports that the tree does not hold the whole prefix: run a request with
// that prefix first.
var ErrNotCached = errors.New("radixcache: prefix is not cached")

// prefixPins holds the prefixes that PinPrefix protects.
type prefixPins struct {
	pins   []prefixPin // in the order in which they were pinned
	tokens int         // sum over pins, at most Config.PinnedTokens
}

// prefixPin is one handle: on node, at whose end the prefix of this length ends.
type prefixPin struct {
	node   NodeID
	tokens int
	until  time.Duration // time at which Expire unpins it; 0: never
	owner  SessionID     // session whose pin it is; 0: a pin of PinPrefix
}

// SessionID numbers a session, a row of requests of which each usually continues the one before. The caller
// gives each session a number of its own and never uses it again for another one. 0 is no session.
type SessionID uint32

// PinPrefix protects the whole pages of a key from eviction. until is the time at which
// [Cache.Expire] ends the protection, on the clock of Expire's now; with 0 it lasts until
// UnpinPrefix or Flush. A prefix that is already pinned gets the new time. Each prefix counts
// in full against [Config.PinnedTokens], even where prefixes share nodes, so unpinning one
// never changes the count of another.
//
// It returns [ErrNotCached] if the tree does not hold all whole pages of the key, or the
// key has none, [ErrPinBudget] if they exceed the budget, and an error if until is negative.
func (c *Cache) PinPrefix(key Key, until time.Duration) error {
	if until < 0 {
		return fmt.Errorf("radixcache: PinPrefix until %v, want 0 (no limit) or more", until)
	}
	m := c.Match(key)
	whole := c.floorTokens(len(key.Tokens))
	if m.Tokens < whole || whole == 0 {
		return fmt.Errorf("%w: only %d of its %d tokens in whole pages", ErrNotCached, m.Tokens, whole)
	}
	if i := c.prefixPin(m); i >= 0 {
		c.prefixes.pins[i].until = until
		return nil
	}
	if err := c.addPin(m, whole, until, 0); err != nil {
		return err
	}
	c.verify("PinPrefix")
	return nil
}

// addPin pins the first whole tokens of match m, in whole pages, unless they exceed the budget.
func (c *Cache) addPin(m Match, whole int, until time.Duration, owner SessionID) error {
	if used := c.prefixes.tokens; used+whole > c.cfg.PinnedTokens {
		return fmt.Errorf("%w: %d tokens wanted, %d of %d in use", ErrPinBudget, whole, used, c.cfg.PinnedTokens)
	}
	id := m.Node
	if n := &c.nodes[id]; whole < n.end() {
		id = c.split(id, whole-int(n.start))
	}
	c.pinPath(id)
	c.prefixes.pins = append(c.prefixes.pins, prefixPin{id, whole, until, owner})
	c.prefixes.tokens += whole
	return nil
}

// PinSession is PinPrefix for what the tree holds of key, which may be less than all of it. The pin belongs
// to a session and replaces the session's earlier one, so pins of equal prefixes end apart. It returns the
// number of tokens pinned. If it fails, the session has no pin.
func (c *Cache) PinSession(owner SessionID, key Key, until time.Duration) (tokens int, err error) {
	if until < 0 || owner == 0 {
		return 0, fmt.Errorf("radixcache: PinSession of session %d until %v, want a session, and 0 (no limit) or more", owner, until)
	}
	c.UnpinSession(owner)
	m := c.Match(key)
	if m.Tokens == 0 {
		return 0, fmt.Errorf("%w: nothing that the session has left", ErrNotCached)
	}
	if err := c.addPin(m, m.Tokens, until, owner); err != nil {
		return 0, err
	}
	c.verify("PinSession")
	return m.Tokens, nil
}

// UnpinSession ends the pin of a session, if it has one, and reports whether it had.
func (c *Cache) UnpinSession(owner SessionID) bool {
	i := slices.IndexFunc(c.prefixes.pins, func(p prefixPin) bool { return p.owner == owner })
	if i < 0 || owner == 0 {
		return false
	}
	c.dropPrefix(i)
	c.tidy()
	c.verify("UnpinSession")
	return true
}

// UnpinPrefix ends the protection of a key's whole pages. It returns
// [ErrNotCached] if no pinned prefix ends exactly there.
func (c *Cache) UnpinPrefix(key Key) error {
	m := c.Match(key)
	i := c.prefixPin(m)
	if i < 0 || m.Tokens < c.floorTokens(len(key.Tokens)) {
		return fmt.Errorf("%w, or not pinned: the first %d tokens are held", ErrNotCached, m.Tokens)
	}
	c.dropPrefix(i)
	c.tidy()
	c.verify("UnpinPrefix")
	return nil
}

// PinnedPrefixes returns the number of pinned prefixes and their tokens in sum.
func (c *Cache) PinnedPrefixes() (count, tokens int) {
	return len(c.prefixes.pins), c.prefixes.tokens
}

// prefixPin returns the index of the pin of PinPrefix that ends where m ends, or -1.
func (c *Cache) prefixPin(m Match) int {
	return slices.IndexFunc(c.prefixes.pins, func(p prefixPin) bool {
		return p.node == m.Node && p.tokens == m.Tokens && p.owner == 0
	})
}

// dropPrefix removes the i-th pinned prefix. The caller calls tidy: the node may
// have become a link.
func (c *Cache) dropPrefix(i int) {
	p := c.prefixes.pins[i]
	c.prefixes.pins = slices.Delete(c.prefixes.pins, i, i+1)
	c.prefixes.tokens -= p.tokens
	c.unpinPath(p.node)
}

// expirePrefixes unpins the prefixes whose time until is now or before.
func (c *Cache) expirePrefixes(now time.Duration) {
	for i := len(c.prefixes.pins) - 1; i >= 0; i-- {
		if until := c.prefixes.pins[i].until; until > 0 && until <= now {
			c.dropPrefix(i)
		}
	}
	c.tidy()
}
