package radixcache

import (
	"fmt"

	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
)

// Cache is the prefix tree with its eviction order, quotas and events. One
// goroutine owns it; see the package comment.
//
// The tree is built in layers, each of which embeds the layer below and never
// calls the layer above: slab (nodes and children), eviction (orders), spaces
// (namespaces and quotas), tree (changes of shape, events, media).
type Cache struct {
	tree
	prefixes prefixPins
	ages     ages
	curve    curve
	epoch    uint64 // number of flushes
	born     uint64 // version at which Restore replaced the tree: an older Match names other nodes
}

// New returns an empty cache, or an error that wraps [ErrConfig].
func New(cfg Config) (*Cache, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Cache{}
	c.spaces = newSpaces(cfg.WithDefaults())
	c.curve = newCurve(c.cfg.CurveSamples, c.cfg.PageTokens)
	return c, nil
}

// Config returns the configuration in use, with defaults filled in.
func (c *Cache) Config() Config { return c.cfg }

// verify runs the full walk after a mutation, under -tags invariants only.
func (c *Cache) verify(call string) {
	if invariants.Enabled {
		if err := c.Check(); err != nil {
			panic(fmt.Sprintf("radixcache: after %s: %v", call, err))
		}
	}
}

// TakeEvents appends the events since the last call to dst, in order, and
// forgets them. Seq is left 0 for the publisher to set. The events' slices are
// fresh and never change. With Config.Events the journal grows until it is
// taken: take it once per step.
//
// A block belongs to the node that holds its last token. It is announced when
// that token enters the tree and withdrawn when that token leaves. Parents are
// announced before their children and withdrawn after them. Splits and joins
// make no events: they move blocks between nodes, but no token comes or goes.
//
// The blocks of a private space carry its own namespace, even the one block
// that may begin with public tokens. Example: blocks of 4, 6 public tokens. Block
// [4,8) ends in the private space, so it is announced once for each salt.
func (c *Cache) TakeEvents(dst []kv.Event) []kv.Event {
	return c.journal.take(dst)
}
