package radixcache

import (
	"fmt"

	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
)

// Cache is the prefix tree and what goes with it. See the package comment for its
// one caller.
//
// The tree is built in layers, each of which embeds the one below and never calls
// the one above: slab (nodes and children), eviction (orders), spaces (namespaces
// and quotas), tree (changes of shape, events, media).
type Cache struct {
	tree
	prefixes prefixPins
	ages     ages
	curve    curve
	epoch    uint64 // flushes so far
	born     uint64 // the version at which Restore made the tree: a Match from before is of other nodes
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

// Config is the configuration in use, defaults filled in.
func (c *Cache) Config() Config { return c.cfg }

// verify runs the full walk after a mutation, under -tags invariants only.
func (c *Cache) verify(call string) {
	if invariants.Enabled {
		if err := c.Check(); err != nil {
			panic(fmt.Sprintf("radixcache: after %s: %v", call, err))
		}
	}
}

// TakeEvents appends what happened since the last call to dst, in order, and
// forgets it. Seq is left 0 for the publisher to set. The events' slices are
// fresh and never change. With Config.Events the journal grows until it is
// taken: take it once per step.
//
// A block lives in the node that holds its last token. It is announced when
// that token comes in and withdrawn when it goes; parents are announced before
// and withdrawn after their children. The blocks of a private space are of its
// own namespace, also one that begins with public tokens.
func (c *Cache) TakeEvents(dst []kv.Event) []kv.Event {
	return c.journal.take(dst)
}
