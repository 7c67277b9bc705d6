package radixcache

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
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

// A snapshot is little endian: a header of 40 bytes, 16 bytes per medium, the nodes in
// the order of Walk, and XXH3-64 of all bytes before it. A node takes 40 bytes, its
// namespace if that differs from the parent's, 4 bytes per token and 4 per page. A million
// tokens in pages of 16 take 4.25 MB, and 40 bytes for each node.
const (
	snapshotMagic   = "CPRX"
	snapshotVersion = 1
)

// snapshotHeader is the first part of a snapshot. PageTokens must agree with the cache.
type snapshotHeader struct {
	Magic      [4]byte
	Version    uint32
	PageTokens uint32
	Media      uint32 // number of media entries, unused ones too
	Nodes      uint32 // number of nodes
	Pages      uint32 // number of pages of all nodes
	Clock      uint64
	Memory     uint64 // the policy's state: ranking.memory
}

// snapshotMedium is the entry of one number of a medium. Unused numbers have entries with
// Live 0, so that Restore gives every medium the number that the nodes' tokens contain.
type snapshotMedium struct {
	Hash        uint64
	Placeholder kv.Token
	Live        uint32
}

// snapshotNode is the head of a node. Its namespace's three strings follow if Names is 1,
// then its tokens and its pages.
type snapshotNode struct {
	Parent uint32 // 1 + index in the order of Walk; 0 at the beginning of a namespace
	Names  uint32 // 1 if the namespace differs from the parent's, or there is no parent
	Tokens uint32
	Hits   uint32
	Prio   int32
	_      uint32
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
	hash := xxh3.New()
	out := bufio.NewWriter(io.MultiWriter(w, hash))
	head := snapshotHeader{Version: snapshotVersion, PageTokens: uint32(c.cfg.PageTokens), Media: uint32(len(c.media.entries)), Clock: c.clock, Memory: c.by.memory()}
	copy(head.Magic[:], snapshotMagic)
	for v := range c.Walk() {
		head.Nodes++
		head.Pages += uint32(len(v.Pages))
	}
	put := func(values ...any) {
		for _, v := range values {
			binary.Write(out, binary.LittleEndian, v) // the error stays in out
		}
	}
	put(head)
	for id, e := range c.media.entries {
		_, live := c.media.ids[e.key]
		live = live && c.media.ids[e.key] == uint32(id)
		put(snapshotMedium{e.key.hash, e.key.placeholder, uint32(count(live))})
	}
	index := map[NodeID]uint32{Root: 0}
	namespaces := map[NodeID]kv.Namespace{}
	for v := range c.Walk() {
		index[v.ID], namespaces[v.ID] = uint32(len(index)), v.Namespace
		names := v.Parent == Root || namespaces[v.Parent] != v.Namespace
		put(snapshotNode{
			Parent: index[v.Parent], Names: uint32(count(names)), Tokens: uint32(len(v.Tokens)),
			Hits: uint32(v.Hits), Prio: v.Priority, Stamp: v.Stamp, Mark: v.Mark,
		})
		if names {
			for _, s := range []string{v.Namespace.Model, v.Namespace.LoRA, v.Namespace.Salt} {
				put(uint32(len(s)), []byte(s))
			}
		}
		put(v.Tokens, v.Pages)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("radixcache: writing a snapshot: %w", err)
	}
	if err := binary.Write(w, binary.LittleEndian, hash.Sum64()); err != nil {
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
	in := restorer{c: fresh, in: bytes.NewReader(data[:len(data)-8]), pages: pages}
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
	in    *bytes.Reader
	pages []kv.PageID
	used  int        // number of pages read so far
	ids   []NodeID   // ids of the nodes read, by index in the order of Walk
	path  []kv.Token // tokens from 0 to the end of the latest node
}

// run reads a whole snapshot into r.c and checks the tree. It does not trust the snapshot's
// counts: it compares each length with the bytes left before it allocates memory.
func (r *restorer) run() error {
	var head snapshotHeader
	if err := r.get(&head); err != nil {
		return err
	}
	switch c := r.c; {
	case string(head.Magic[:]) != snapshotMagic || head.Version != snapshotVersion:
		return fmt.Errorf("%w: starts with %q, version %d, want %q, version %d", ErrSnapshot, head.Magic, head.Version, snapshotMagic, snapshotVersion)
	case head.Clock > math.MaxInt64 || head.Memory > math.MaxInt32:
		return fmt.Errorf("%w: clock %d, the policy's memory %d", ErrSnapshot, head.Clock, head.Memory)
	case int(head.PageTokens) != c.cfg.PageTokens:
		return fmt.Errorf("radixcache: a snapshot of pages of %d tokens does not fit a cache with pages of %d", head.PageTokens, c.cfg.PageTokens)
	case r.pages != nil && int(head.Pages) > len(r.pages):
		return fmt.Errorf("radixcache: the snapshot has %d pages, the caller gives %d", head.Pages, len(r.pages))
	}
	r.c.clock = head.Clock
	r.c.by.recall(head.Memory)
	if err := r.media(int(head.Media)); err != nil {
		return err
	}
	for range head.Nodes {
		if err := r.node(); err != nil {
			return err
		}
	}
	if r.used != int(head.Pages) {
		return fmt.Errorf("%w: %d pages announced, the nodes have %d", ErrSnapshot, head.Pages, r.used)
	}
	if r.in.Len() > 0 {
		return fmt.Errorf("%w: %d more bytes than expected", ErrSnapshot, r.in.Len())
	}
	r.order()
	if err := r.c.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	return nil
}

// get reads a value of a fixed size into v, a pointer or a slice. It fails if the snapshot
// is too short.
func (r *restorer) get(v any) error {
	if err := binary.Read(r.in, binary.LittleEndian, v); err != nil {
		return fmt.Errorf("%w: cut short", ErrSnapshot)
	}
	return nil
}

// words reads n values of four bytes each, after checking that these bytes are there.
func words[T kv.Token | kv.PageID](r *restorer, n uint32) ([]T, error) {
	if int64(n)*4 > int64(r.in.Len()) {
		return nil, fmt.Errorf("%w: %d values announced, %d bytes left", ErrSnapshot, n, r.in.Len())
	}
	list := make([]T, n)
	return list, r.get(list)
}

// media reads the entries of n numbers of media. The uses of each medium are counted later,
// when nodes are attached.
func (r *restorer) media(n int) error {
	m := &r.c.media
	for id := range n {
		var e snapshotMedium
		if err := r.get(&e); err != nil {
			return err
		}
		key := mediaKey{e.Hash, e.Placeholder}
		if _, twice := m.ids[key]; e.Live == 1 && twice {
			return fmt.Errorf("%w: medium %d is listed twice", ErrSnapshot, id)
		}
		if m.ids == nil {
			m.ids = map[mediaKey]uint32{}
		}
		m.entries = append(m.entries, mediaEntry{})
		if e.Live == 1 {
			m.entries[id].key, m.ids[key] = key, uint32(id)
		} else {
			m.free = append(m.free, uint32(id))
		}
	}
	return nil
}

// node reads one node and attaches it below its parent.
func (r *restorer) node() error {
	c := r.c
	var s snapshotNode
	if err := r.get(&s); err != nil {
		return err
	}
	if int(s.Parent) > len(r.ids) || s.Parent == 0 && s.Names == 0 || s.Stamp > c.clock {
		return fmt.Errorf("%w: node %d has parent %d, stamp %d of %d", ErrSnapshot, len(r.ids), s.Parent, s.Stamp, c.clock)
	}
	parent := Root
	if s.Parent > 0 {
		parent = r.ids[s.Parent-1]
	}
	var ns kv.Namespace
	if s.Names != 0 {
		var err error
		if ns, err = r.namespace(); err != nil {
			return err
		}
	}
	tokens, err := words[kv.Token](r, s.Tokens)
	if err != nil {
		return err
	}
	pages, err := words[kv.PageID](r, uint32(kv.CeilPages(len(tokens), c.cfg.PageTokens)))
	if err != nil {
		return err
	}
	if r.pages != nil {
		copy(pages, r.pages[min(r.used, len(r.pages)):])
	}
	r.used += len(pages)
	for _, t := range tokens {
		if id := int(t-MediaToken) / 2; t >= MediaToken && id >= len(c.media.entries) {
			return fmt.Errorf("%w: node %d holds medium %d of %d", ErrSnapshot, len(r.ids), id, len(c.media.entries))
		}
	}
	return r.hang(s, parent, ns, tokens, pages)
}

// namespace reads three strings, each with its length before it.
func (r *restorer) namespace() (ns kv.Namespace, err error) {
	for _, field := range []*string{&ns.Model, &ns.LoRA, &ns.Salt} {
		var n uint32
		if err := r.get(&n); err != nil {
			return ns, err
		}
		if int64(n) > int64(r.in.Len()) {
			return ns, fmt.Errorf("%w: a name of %d bytes, but %d bytes left", ErrSnapshot, n, r.in.Len())
		}
		name := make([]byte, n)
		if err := r.get(name); err != nil {
			return ns, err
		}
		*field = string(name)
	}
	return ns, nil
}

// hang attaches a node that was read. It returns an error if the tree would be invalid: if
// the node is empty, is below a tail leaf, has the first page of a sibling, begins a private
// space without salt, or breaks the order of Walk. In that order all nodes between a node
// and its parent are below the parent, so r.path always begins with the parent's tokens.
func (r *restorer) hang(s snapshotNode, parent NodeID, ns kv.Namespace, tokens []kv.Token, pages []kv.PageID) error {
	c := r.c
	bad := fmt.Errorf("%w: node %d can't be a child of node %d", ErrSnapshot, len(r.ids), s.Parent)
	if len(tokens) == 0 || parent != Root && c.isTail(&c.nodes[parent]) {
		return bad
	}
	if s.Names != 0 {
		if parent != Root && (ns == c.nodes[parent].space.ns || ns.Salt == "") {
			return bad
		}
		parent = c.openSpace(ns, parent)
	}
	at, found := c.find(parent, tokens)
	if found && c.kidAt(parent, at) != Root {
		return bad
	}
	id := c.attach(node{tokens: c.memory.Of(tokens), pages: wide.PackedOf(pages), space: c.nodes[parent].space, start: int32(c.nodes[parent].end()), parent: parent})
	n := &c.nodes[id]
	n.stamp, n.mark, n.hits, n.prio = s.Stamp, s.Mark, s.Hits, s.Prio
	r.ids = append(r.ids, id)
	r.path = append(r.path[:min(int(n.start), len(r.path))], tokens...)
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
