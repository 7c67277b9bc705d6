package coppice

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/actors"
	"github.com/coppice-llm/coppice/events/eventlog"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler"
)

// Stats returns the current figures, or the final ones after Close.
func (n *Node) Stats(ctx context.Context) (Stats, error) {
	st, err := n.sys.Stats(ctx)
	return st, public(err)
}

// ask calls the function at on the scheduler's goroutine, between two steps, and returns
// its result.
func ask[T any](ctx context.Context, n *Node, at func(core *scheduler.Scheduler, now time.Duration) T) (T, error) {
	v, err := actors.Ask(ctx, n.sys, at)
	return v, public(err)
}

// do is ask for a function that returns nothing but an error.
func do(ctx context.Context, n *Node, at func(core *scheduler.Scheduler, now time.Duration) error) error {
	failed, err := ask(ctx, n, at)
	if err != nil {
		return err
	}
	return public(failed)
}

// Waiting returns each waiting sample and the reason that it waits, in the order of arrival;
// requests are numbered from 1. Samples whose text is still being encoded or whose Format is
// still being compiled are not included.
func (n *Node) Waiting(ctx context.Context) ([]scheduler.Wait, error) {
	return ask(ctx, n, func(core *scheduler.Scheduler, _ time.Duration) []scheduler.Wait { return core.Waiting(nil) })
}

// Running returns each sample that has a slot, the oldest first.
func (n *Node) Running(ctx context.Context) ([]scheduler.Run, error) {
	return ask(ctx, n, func(core *scheduler.Scheduler, now time.Duration) []scheduler.Run { return core.Running(now, nil) })
}

// FlushCache drops all cached prefixes; running requests keep theirs.
func (n *Node) FlushCache(ctx context.Context) error {
	return do(ctx, n, func(core *scheduler.Scheduler, _ time.Duration) error { core.FlushCache(); return nil })
}

// PinPrefix keeps the whole pages of a cached prefix from eviction for d, or with 0 until
// UnpinPrefix. It fails with ErrNotCached if they are not cached, with ErrPinBudget beyond
// Scheduler.PinnedTokens, and with ErrNoCache if the cache is off.
func (n *Node) PinPrefix(ctx context.Context, ns kv.Namespace, tokens []kv.Token, d time.Duration) error {
	tokens = slices.Clone(tokens)
	return do(ctx, n, func(core *scheduler.Scheduler, now time.Duration) error { return core.PinPrefix(now, ns, tokens, d) })
}

// UnpinPrefix ends the pin of a prefix. It fails with ErrNotCached if the prefix is not
// pinned, and with ErrNoCache if the cache is off.
func (n *Node) UnpinPrefix(ctx context.Context, ns kv.Namespace, tokens []kv.Token) error {
	tokens = slices.Clone(tokens)
	return do(ctx, n, func(core *scheduler.Scheduler, _ time.Duration) error { return core.UnpinPrefix(ns, tokens) })
}

// SessionRef names a session for ReleaseSession, PinSession and ExpectSession: its Name is the Session of
// requests with the same Namespace and Tenant.
type SessionRef = scheduler.SessionRef

// ReleaseSession says that a session takes no further turn: what it has left may be evicted before all else.
// Its pin ends, and the name that a Park has kept is removed. It fails with ErrNoSession if no turn of the session has ended
// and it is not parked, and with ErrNoCache if the cache is off.
func (n *Node) ReleaseSession(ctx context.Context, session SessionRef) error {
	err := do(ctx, n, func(core *scheduler.Scheduler, _ time.Duration) error { return core.ReleaseSession(session) })
	if err != nil && !errors.Is(err, ErrNoSession) {
		return err
	}
	was, failed := n.names.drop(n.sys.Notes(), session)
	if failed != nil {
		return public(failed)
	}
	if was {
		return nil
	}
	return err
}

// AwaitTools says that the answer of a session's last turn calls tools, by their names, so that its next turn comes once they have
// run. The eviction policy radixcache.Session learns from that how long to keep what the turn left; under other policies AwaitTools
// does nothing. A server calls it for its clients' sessions and Session.Run for its own; call it where your program reads
// the calls itself. It fails with ErrNoSession, and with ErrNoCache if the cache is off.
func (n *Node) AwaitTools(ctx context.Context, session SessionRef, names ...string) error {
	if n.Limits().Eviction != radixcache.Session || len(names) == 0 {
		return nil
	}
	names = slices.Clone(names)
	slices.Sort(names)
	tools := strings.Join(slices.Compact(names), ",")
	return do(ctx, n, func(core *scheduler.Scheduler, _ time.Duration) error { return core.AwaitTools(session, tools) })
}

// PinSession keeps what the last turn of a session left in the cache for d, or with 0 until UnpinSession or
// ReleaseSession. The pin moves on with each turn. It returns the number of tokens pinned, in whole pages.
// It fails as PinPrefix does, and with ErrNoSession.
func (n *Node) PinSession(ctx context.Context, session SessionRef, d time.Duration) (tokens int, err error) {
	type pinned struct {
		tokens int
		err    error
	}
	p, err := ask(ctx, n, func(core *scheduler.Scheduler, now time.Duration) (p pinned) {
		p.tokens, p.err = core.PinSession(now, session, d)
		return p
	})
	if err == nil {
		err = public(p.err)
	}
	return p.tokens, err
}

// UnpinSession ends the pin of a session. It fails with ErrNoSession, and with ErrNoCache if the cache is off.
func (n *Node) UnpinSession(ctx context.Context, session SessionRef) error {
	return do(ctx, n, func(core *scheduler.Scheduler, _ time.Duration) error { return core.UnpinSession(session) })
}

// ExpectSession says that a turn of a session comes in the given time, at most 24 hours: what the last turn
// left, or what was parked, is fetched from lower tiers before that. It fails with ErrNoSession, and with ErrNoCache if the cache
// is off.
func (n *Node) ExpectSession(ctx context.Context, session SessionRef, in time.Duration) error {
	known := false
	err := do(ctx, n, func(core *scheduler.Scheduler, now time.Duration) error {
		known = core.Remembers(session)
		return core.ExpectSession(now, session, in)
	})
	if err == nil && known || err != nil && !errors.Is(err, ErrNoSession) {
		return err
	}
	if failed := n.restore(ctx, session); failed != nil {
		if errors.Is(failed, ErrNoSession) {
			return err
		}
		return failed
	}
	return do(ctx, n, func(core *scheduler.Scheduler, now time.Duration) error { return core.ExpectSession(now, session, in) })
}

// HitRates returns, for each capacity in tokens, the fraction of prompt tokens that a cache
// of that size would have found so far. It returns nothing unless Scheduler.Curve is
// set.
func (n *Node) HitRates(ctx context.Context, capacityTokens []int) ([]float64, error) {
	capacityTokens = slices.Clone(capacityTokens)
	return ask(ctx, n, func(core *scheduler.Scheduler, _ time.Duration) (rates []float64) {
		if cache := core.Cache(); cache != nil {
			rates = cache.HitRates(capacityTokens, nil)
		}
		return rates
	})
}

// TreeQuery bounds the result of Node.Tree.
type TreeQuery struct {
	MaxDepth      int // levels below the root. Default: all.
	MaxNodes      int // Default: all.
	TokensPerNode int // length of TreeNode.First. Default: 0.
}

// Tree lists the contents of the cache.
type Tree struct {
	Nodes []TreeNode // parents before children, siblings ascending
	// Hidden is the number of nodes omitted because of a bound. With MaxDepth, or if MaxNodes
	// omitted some, it includes flushed nodes that running requests still use.
	Hidden int
}

// TreeNode is a radix tree node: a run of cached tokens.
type TreeNode struct {
	ID, Parent radixcache.NodeID // Parent is radixcache.Root for the first node of a namespace
	Namespace  kv.Namespace
	Start      int // number of tokens before the node
	Tokens     int
	First      []kv.Token // the first TokensPerNode of its tokens
	Pages      int
	Leaf       bool
	Tail       bool   // its only page is not full
	Pins       int    // number of requests and pins that hold the node, plus its children that have pins
	Hits       uint64 // matches that ended in this node
	Stamp      uint64 // larger: used more recently
}

// Tree lists the contents of the cache. Steps wait for it, about 0.2 µs per node returned.
func (n *Node) Tree(ctx context.Context, q TreeQuery) (Tree, error) {
	return ask(ctx, n, func(core *scheduler.Scheduler, _ time.Duration) (t Tree) {
		if cache := core.Cache(); cache != nil {
			t = q.list(cache.WalkTo(q.MaxDepth), cache.Stats().Nodes)
		}
		return t
	})
}

// list returns the nodes of walk, which visits the tree down to MaxDepth, up to MaxNodes of
// them. all is the number of nodes in the tree.
func (q TreeQuery) list(walk iter.Seq[radixcache.NodeView], all int) (t Tree) {
	n, cut := all, q.MaxDepth > 0
	if q.MaxNodes > 0 {
		n = min(n, q.MaxNodes)
	}
	t.Nodes = make([]TreeNode, 0, n)
	for v := range walk {
		if q.MaxNodes > 0 && len(t.Nodes) == q.MaxNodes {
			cut = true
			break
		}
		t.Nodes = append(t.Nodes, TreeNode{
			ID: v.ID, Parent: v.Parent, Namespace: v.Namespace, Start: v.Start, Tokens: len(v.Tokens),
			First: append([]kv.Token(nil), v.Tokens[:min(len(v.Tokens), q.TokensPerNode)]...),
			Pages: len(v.Pages), Leaf: v.Leaf, Tail: v.Tail, Pins: v.Pins, Hits: v.Hits, Stamp: v.Stamp,
		})
	}
	if cut {
		t.Hidden = all - len(t.Nodes)
	}
	return t
}

// Events yields the cache events in order and without gaps, beginning with those of the
// batch whose number is from, until ctx or the Node ends. It yields ErrLagged if that batch
// is no longer kept. Event.Seq is the number of the event's batch; after all events of one
// batch, continue at Seq+1. There are no events unless Scheduler.Events is set.
func (n *Node) Events(ctx context.Context, from uint64) iter.Seq2[kv.Event, error] {
	return func(yield func(kv.Event, error) bool) {
		for event, err := range n.sys.Events(ctx, from) {
			if !yield(event, public(err)) {
				return
			}
		}
	}
}

// EventLog returns the log that Events reads, for an [events.Publisher].
func (n *Node) EventLog() *eventlog.Log { return n.sys.EventLog() }
