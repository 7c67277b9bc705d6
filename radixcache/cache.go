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
}

// New returns an empty cache, or an error that wraps [ErrConfig].
func New(cfg Config) (*Cache, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Cache{}
	c.spaces = newSpaces(cfg.WithDefaults())
	if c.curve.live = c.cfg.Curve; c.curve.live != nil {
		if err := c.curve.live.Begin(c.cfg.PageTokens); err != nil {
			return nil, fmt.Errorf("%w: Curve: %w", ErrConfig, err)
		}
	}
	return c, nil
}

// verify runs Check after a mutation and panics if it fails, under -tags invariants only.
// call names the method that made the change, for the panic's text.
func (c *Cache) verify(call string) {
	if invariants.Enabled {
		if err := c.Check(); err != nil {
			panic(fmt.Sprintf("radixcache: after %s: %v", call, err))
		}
	}
}

// TakeEvents returns dst with the events since the last call appended, in order,
// and forgets these events. Seq is 0; the publisher sets it. The cache never
// changes the events' slices later. With Config.Events the cache keeps all events
// until TakeEvents is called: call it once per step.
//
// A Stored event announces a block when its last token enters the tree, and a
// Removed event withdraws the block when that token leaves. Parents are announced
// before their children and withdrawn after them. Splits and joins make no events:
// they move blocks between nodes, but add and remove no token.
//
// The events of a private space have the namespace with its salt, even for a block
// that begins with public tokens. Example: blocks have 4 tokens, and the first 6
// tokens are public. Block [4,8) ends in the private space, so each salt has its own
// event for the block.
func (c *Cache) TakeEvents(dst []kv.Event) []kv.Event {
	return c.journal.take(dst)
}
