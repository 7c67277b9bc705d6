package kvindex

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// Names maps the block hashes of one holder, whose engine has a hash function of its own, to
// hashes of [kv.Chain]. The hashes of vLLM, for example, differ from process to process. Below,
// the engine's hashes are called names. It costs about 35 bytes per block of such a holder, and
// nothing for others.
//
// Example: an engine names the blocks of a prompt 71, 72 and 73. Names maps them to the chained
// hashes h0, h1 and h2, under which the index knows them. If a later Store uses the name 72 for
// a block with other content, h1 is returned as gone.
type Names struct {
	limit  int
	names  map[kv.BlockHash]kv.BlockHash
	sorted []kv.BlockHash // scratch
	run    Run            // scratch
	gone   []kv.BlockHash // scratch
}

// NewNames makes an empty Names for at most limit blocks; 0 means the default of
// Config.HolderBlocks.
func NewNames(limit int) *Names {
	if limit <= 0 {
		limit = Config{}.WithDefaults().HolderBlocks
	}
	return &Names{limit: limit, names: map[kv.BlockHash]kv.BlockHash{}}
}

// Len returns the number of names.
func (n *Names) Len() int { return len(n.names) }

// Store translates a run, given by names, for [Index.Store], and remembers its names. gone lists
// blocks by chained hash: their names now mean other content, so the holder can't have them any
// more. Remove them from the index first. Both results are valid until the next call. Errors,
// which change nothing: ErrSequence if a name occurs twice in the run or equals the parent's, or
// if the numbers of hashes differ; ErrUnknownParent; ErrFull if there would be more names than
// limit.
func (n *Names) Store(run Run) (translated Run, gone []kv.BlockHash, err error) {
	if len(run.Hashes) != len(run.Locals) || run.HasParent && slices.Contains(run.Hashes, run.Parent) {
		return Run{}, nil, ErrSequence
	}
	// Everything is checked before anything changes. A name that occurs twice in a run would
	// stand for two blocks: sorting finds it in O(n log n) without a map.
	n.sorted = append(n.sorted[:0], run.Hashes...)
	slices.Sort(n.sorted)
	for i := 1; i < len(n.sorted); i++ {
		if n.sorted[i] == n.sorted[i-1] {
			return Run{}, nil, ErrSequence
		}
	}
	n.run.HasParent = run.HasParent
	if run.HasParent {
		parent, ok := n.names[run.Parent]
		if !ok {
			return Run{}, nil, ErrUnknownParent
		}
		n.run.Parent = parent
	}
	if !n.fits(run.Hashes) {
		return Run{}, nil, ErrFull
	}
	// From here on nothing can fail. A name that is known with the same hash is stored again
	// without effect.
	n.run.Hashes, n.run.Locals = n.run.Hashes[:0], append(n.run.Locals[:0], run.Locals...)
	n.gone = n.gone[:0]
	last, started := n.run.Parent, run.HasParent
	for i, local := range run.Locals {
		if started {
			last = kv.Chain(last, local)
		} else {
			last, started = kv.BlockHash(local), true
		}
		if old, ok := n.names[run.Hashes[i]]; ok && old != last {
			n.gone = append(n.gone, old)
		}
		n.names[run.Hashes[i]] = last
		n.run.Hashes = append(n.run.Hashes, last)
	}
	return n.run, n.gone, nil
}

// fits reports whether there is room for those of names that are not known yet. No name may
// occur twice.
func (n *Names) fits(names []kv.BlockHash) bool {
	// Known names need no room. They are looked up only if there might not be room for all.
	room := n.limit - len(n.names)
	for i := 0; i < len(names) && room < len(names)-i; i++ {
		if _, known := n.names[names[i]]; !known {
			if room--; room < 0 {
				return false
			}
		}
	}
	return true
}

// Remove appends the chained hashes of names to dst and forgets the names. Unknown names are
// skipped.
func (n *Names) Remove(names, dst []kv.BlockHash) []kv.BlockHash {
	for _, name := range names {
		if hash, ok := n.names[name]; ok {
			dst = append(dst, hash)
			delete(n.names, name)
		}
	}
	return dst
}

// Hash returns the chained hash of a name. The second result is false if the name is unknown.
func (n *Names) Hash(name kv.BlockHash) (kv.BlockHash, bool) {
	hash, ok := n.names[name]
	return hash, ok
}
