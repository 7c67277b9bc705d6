package radixcache

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// ErrSnapshot is wrapped by the errors of [Cache.Restore] for bytes that are no valid
// snapshot.
var ErrSnapshot = errors.New("radixcache: bad snapshot")

// snapshotHead begins a snapshot. It is written as JSON, followed by the nodes in the order of Walk, each
// as JSON, and by XXH3-64 of all that text in 8 bytes, little endian. A million tokens in pages of 16 take
// about 7 MB, and 100 bytes for each node.
type snapshotHead struct {
	Format     int // snapshotFormat
	PageTokens int // must agree with the cache
	Nodes      int
	Clock      uint64
	Memory     uint64 // the policy's state: ranking.memory
	Media      []snapshotMedium
}

const snapshotFormat = 2

// snapshotMedium is the entry of one number of a medium. Unused numbers have entries that are not
// Live, so that Restore gives every medium the number that the nodes' tokens contain.
type snapshotMedium struct {
	Hash        uint64
	Placeholder kv.Token
	Live        bool
}

type snapshotNode struct {
	Parent int        // 1 + index in the order of Walk; 0 at the beginning of a namespace
	Names  *[3][]byte `json:",omitempty"` // namespace: model, LoRA and salt, which may be no UTF-8; nil: the parent's
	Tokens []kv.Token
	Pages  []kv.PageID
	Hits   uint32
	Prio   int32
	Stamp  uint64
	Mark   uint64
}

// Snapshot writes the nodes of the tree with their pages and their order of eviction. It
// leaves out pins, quotas, past counts and flushed trees. The caller must save the
// contents of the pages. It returns an error while nodes are distrusted, as their KV may
// be wrong.
func (c *Cache) Snapshot(w io.Writer) error {
	if n := c.doubts.count; n > 0 {
		return fmt.Errorf("radixcache: %d nodes are distrusted, and a snapshot must not keep their KV: try again", n)
	}
	head := snapshotHead{Format: snapshotFormat, PageTokens: c.cfg.PageTokens, Clock: c.clock, Memory: c.by.memory()}
	for range c.Walk() {
		head.Nodes++
	}
	for id, e := range c.media.entries {
		number, known := c.media.ids[e.key]
		head.Media = append(head.Media, snapshotMedium{e.key.hash, e.key.placeholder, known && number == uint32(id)})
	}
	hash := xxh3.New()
	out := bufio.NewWriter(io.MultiWriter(w, hash))
	text := json.NewEncoder(out)
	text.Encode(&head) // its errors stay in out
	index := map[NodeID]int{Root: 0}
	namespaces := map[NodeID]kv.Namespace{}
	for v := range c.Walk() {
		index[v.ID], namespaces[v.ID] = len(index), v.Namespace
		n := snapshotNode{
			Parent: index[v.Parent], Tokens: v.Tokens, Pages: v.Pages,
			Hits: uint32(v.Hits), Prio: v.Priority, Stamp: v.Stamp, Mark: v.Mark,
		}
		if ns := v.Namespace; v.Parent == Root || namespaces[v.Parent] != ns {
			n.Names = &[3][]byte{[]byte(ns.Model), []byte(ns.LoRA), []byte(ns.Salt)}
		}
		text.Encode(&n)
	}
	err := out.Flush()
	if err == nil {
		err = binary.Write(w, binary.LittleEndian, hash.Sum64())
	}
	if err != nil {
		return fmt.Errorf("radixcache: writing a snapshot: %w", err)
	}
	return nil
}

// Restore reads a snapshot into an empty cache of the same page size and returns the
// number of pages. If pages is nil, pages keep their ids. Otherwise the i-th page in the
// order of Walk becomes pages[i]; pages must have as many entries as the snapshot has
// pages, or more. With Config.Events, Stored events announce the blocks.
//
// If Restore returns an error, it has changed nothing. It returns an error if the cache is
// not empty, the page size differs or pages is too short. The error wraps [ErrSnapshot] if
// the bytes are damaged, cut short or do not describe a valid tree.
func (c *Cache) Restore(r io.Reader, pages []kv.PageID) (int, error) {
	if c.counts.Nodes > 0 || len(c.media.ids) > 0 {
		return 0, fmt.Errorf("radixcache: Restore into a cache that holds %d nodes, want an empty one", c.counts.Nodes)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return 0, fmt.Errorf("radixcache: reading a snapshot: %w", err)
	}
	if len(data) < 8 || binary.LittleEndian.Uint64(data[len(data)-8:]) != xxh3.Hash(data[:len(data)-8]) {
		return 0, fmt.Errorf("%w: wrong checksum of %d bytes: damaged or cut short", ErrSnapshot, len(data))
	}
	fresh, err := New(c.cfg)
	if err != nil {
		return 0, err
	}
	fresh.quotas, fresh.epoch, fresh.counts, fresh.curve = c.quotas, c.epoch, c.counts, c.curve // no ages: their marks have stamps of the old clock
	in := restorer{c: fresh, in: json.NewDecoder(bytes.NewReader(data[:len(data)-8])), pages: pages}
	if err := in.run(); err != nil {
		return 0, err
	}
	fresh.journal.events = append(c.journal.events, fresh.journal.events...)
	fresh.born = c.version + 1
	fresh.version += fresh.born
	*c = *fresh
	c.verify("Restore")
	return in.used, nil
}

// restorer is the state of one Restore.
type restorer struct {
	c     *Cache
	in    *json.Decoder
	pages []kv.PageID
	used  int        // number of pages read so far
	ids   []NodeID   // ids of the nodes read, by index in the order of Walk
	path  []kv.Token // tokens from 0 to the end of the latest node
}

// run reads a whole snapshot into r.c and checks the tree. It reads one node at a time, so that a bad
// snapshot takes little more memory than its bytes.
func (r *restorer) run() error {
	c, s := r.c, snapshotHead{}
	if err := r.in.Decode(&s); err != nil {
		return fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	switch {
	case s.Format != snapshotFormat:
		return fmt.Errorf("%w: it has format %d, want %d", ErrSnapshot, s.Format, snapshotFormat)
	case s.Clock > math.MaxInt64 || s.Memory > math.MaxInt32:
		return fmt.Errorf("%w: clock %d, the policy's memory %d", ErrSnapshot, s.Clock, s.Memory)
	case s.PageTokens != c.cfg.PageTokens:
		return fmt.Errorf("radixcache: a snapshot of pages of %d tokens does not fit a cache with pages of %d", s.PageTokens, c.cfg.PageTokens)
	}
	c.clock = s.Clock
	c.by.recall(s.Memory)
	if err := c.media.restore(s.Media); err != nil {
		return err
	}
	for range s.Nodes {
		var n snapshotNode
		if err := r.in.Decode(&n); err != nil {
			return fmt.Errorf("%w: node %d: %w", ErrSnapshot, len(r.ids), err)
		}
		if err := r.node(&n); err != nil {
			return err
		}
	}
	if _, err := r.in.Token(); err != io.EOF {
		return fmt.Errorf("%w: more text after its %d nodes", ErrSnapshot, s.Nodes)
	}
	r.order()
	if err := c.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	return nil
}

// restore gives media their numbers. The uses of each medium are counted later, when nodes are
// attached.
func (m *media) restore(all []snapshotMedium) error {
	m.entries, m.ids = make([]mediaEntry, len(all)), map[mediaKey]uint32{}
	for id, e := range all {
		key := mediaKey{e.Hash, e.Placeholder}
		if _, twice := m.ids[key]; e.Live && twice {
			return fmt.Errorf("%w: medium %d is listed twice", ErrSnapshot, id)
		}
		if e.Live {
			m.entries[id].key, m.ids[key] = key, uint32(id)
		} else {
			m.free = append(m.free, uint32(id))
		}
	}
	return nil
}

// node attaches a node below its parent. It returns an error if the tree would be invalid: if the
// node is empty, lacks pages, is below a tail leaf, has the first page of a sibling, begins a private
// space without salt, or breaks the order of Walk. In that order all nodes between a node and its
// parent are below the parent, so r.path always begins with the parent's tokens.
func (r *restorer) node(s *snapshotNode) error {
	c := r.c
	bad := fmt.Errorf("%w: node %d can't be a child of node %d", ErrSnapshot, len(r.ids), s.Parent)
	if s.Parent < 0 || s.Parent > len(r.ids) || s.Parent == 0 && s.Names == nil || s.Stamp > c.clock ||
		len(s.Tokens) == 0 || len(s.Pages) != kv.CeilPages(len(s.Tokens), c.cfg.PageTokens) {
		return bad
	}
	for _, t := range s.Tokens {
		if id := int(t-MediaToken) / 2; t >= MediaToken && id >= len(c.media.entries) {
			return fmt.Errorf("%w: node %d holds medium %d of %d", ErrSnapshot, len(r.ids), id, len(c.media.entries))
		}
	}
	parent := Root
	if s.Parent > 0 {
		parent = r.ids[s.Parent-1]
	}
	if parent != Root && c.isTail(&c.nodes[parent]) {
		return bad
	}
	if s.Names != nil {
		ns := kv.Namespace{Model: string(s.Names[0]), LoRA: string(s.Names[1]), Salt: string(s.Names[2])}
		if parent != Root && (ns == c.nodes[parent].space.ns || ns.Salt == "") {
			return bad
		}
		parent = c.openSpace(ns, parent)
	}
	at, found := c.find(parent, s.Tokens)
	if found && c.kidAt(parent, at) != Root {
		return bad
	}
	if r.pages != nil {
		if r.used+len(s.Pages) > len(r.pages) {
			return fmt.Errorf("radixcache: the snapshot has more than the %d pages that the caller gives", len(r.pages))
		}
		copy(s.Pages, r.pages[r.used:])
	}
	r.used += len(s.Pages)
	id := c.attach(node{
		tokens: c.memory.Of(s.Tokens), pages: wide.PackedOf(s.Pages), space: c.nodes[parent].space,
		start: int32(c.nodes[parent].end()), parent: parent,
	})
	n := &c.nodes[id]
	n.stamp, n.mark, n.hits, n.prio = s.Stamp, s.Mark, s.Hits, s.Prio
	r.ids = append(r.ids, id)
	r.path = append(r.path[:min(int(n.start), len(r.path))], s.Tokens...)
	if len(r.path) < n.end() {
		return bad // not the order of Walk
	}
	c.journalStored(id, r.path)
	return nil
}

// order adds the leaves to their eviction orders by rising stamp, so that all leaves go to
// the back of a line and none to a late heap.
func (r *restorer) order() {
	c := r.c
	var leaves []NodeID
	for _, id := range r.ids {
		if c.nodes[id].isLeaf() {
			leaves = append(leaves, id)
		}
	}
	slices.SortFunc(leaves, func(a, b NodeID) int { return cmp.Compare(c.nodes[a].stamp, c.nodes[b].stamp) })
	for _, id := range leaves {
		c.enlist(id)
	}
}
