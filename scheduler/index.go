package scheduler

import "github.com/coppice-llm/coppice/kv"

const (
	// indexTokens is the block size of the index in tokens; if a page is larger, the page
	// size is used. A waiting sequence whose cached prefix grows by less than a block is not
	// ranked again.
	indexTokens = 64
	// rerankPerStep bounds how many waiting sequences a step ranks again because more of
	// their tokens are cached; the next steps continue. It bounds the time of a step after
	// a prefix was published that thousands of sequences share.
	rerankPerStep = 256
)

// index finds the waiting sequences that lack a given block. Each is filed under its first
// block that is not cached, by the chained hash of all tokens up to the block's end. For
// example, with blocks of 64, a sequence with 100 cached tokens is filed under the hash of
// its tokens [0, 128). When another sequence publishes tokens [0, 256), the hash of [0,
// 128) finds the waiting sequence. Comparing their next hashes shows how many more blocks
// are equal.
type index struct {
	blockTokens int // 0: there is no cache
	pageTokens  int
	missing     map[kv.BlockHash]*sequence // first of the sequences that lack a block, linked by next
	pending     []publishedBlock           // not yet handled by rerankPublished
}

// publishedBlock is block number block of r's tokens. r has published it, and some waiting
// sequence lacks it.
type publishedBlock struct {
	r     *sequence
	block int
}

// indexing is the index's part of a sequence.
type indexing struct {
	chain     []kv.BlockHash // chained hash of each whole block of tokens
	block     kv.BlockHash   // the key under which it is filed
	filed     bool
	next      *sequence // filed under the same block
	prev      *sequence
	published int // tokens that it has put into the cache
}

// newIndex makes an empty index.
func newIndex(pageTokens int) index {
	return index{blockTokens: max(indexTokens, pageTokens), pageTokens: pageTokens, missing: make(map[kv.BlockHash]*sequence)}
}

// hash computes the chained hashes of q's whole blocks that q.chain does not have yet.
// Samples of one request share the hashes of their prompt; the shared slice's capacity is
// cut, so that an append copies it.
func (x *index) hash(q *sequence) {
	if (len(q.wait.index.chain)+1)*x.blockTokens > len(q.tokens) {
		return
	}
	if q.wait.index.chain == nil {
		if all := q.group.samples; len(all) > 0 && all[0] != q && len(all[0].wait.index.chain) > 0 { // an expected turn has none
			first := all[0]
			n := min(len(first.wait.index.chain), q.prompt/x.blockTokens)
			q.wait.index.chain = first.wait.index.chain[:n:n]
		} else {
			q.wait.index.chain = make([]kv.BlockHash, 0, len(q.tokens)/x.blockTokens)
		}
	}
	seed, public := q.req.Namespace.Seed(), 0
	outer := seed
	if q.req.PublicTokens > 0 { // blocks of public tokens have one hash with all salts
		ns := q.req.Namespace
		ns.Salt = ""
		outer, public = ns.Seed(), q.publicTokens(x.pageTokens)
	}
	for lo := len(q.wait.index.chain) * x.blockTokens; lo+x.blockTokens <= len(q.tokens); lo += x.blockTokens {
		of := seed
		if lo+x.blockTokens <= public {
			of = outer
		}
		local := kv.HashLocal(q.tokens[lo:lo+x.blockTokens], of)
		h := kv.BlockHash(local)
		if n := len(q.wait.index.chain); n > 0 {
			h = kv.Chain(q.wait.index.chain[n-1], local)
		}
		q.wait.index.chain = append(q.wait.index.chain, h)
	}
}

// file files q under its first block that is not cached, or removes it if all are cached.
func (x *index) file(q *sequence) {
	x.hash(q)
	i := q.wait.cached / x.blockTokens
	// The last token is always computed, so a block that ends with it is never cached.
	missing := (i+1)*x.blockTokens < len(q.tokens)
	if q.wait.index.filed && missing && q.wait.index.block == q.wait.index.chain[i] {
		return
	}
	x.drop(q)
	if !missing {
		return
	}
	q.wait.index.block, q.wait.index.filed = q.wait.index.chain[i], true
	first := x.missing[q.wait.index.block]
	q.wait.index.next = first
	if first != nil {
		first.wait.index.prev = q
	}
	x.missing[q.wait.index.block] = q
}

// drop removes q from the index, if it is filed.
func (x *index) drop(q *sequence) {
	if !q.wait.index.filed {
		return
	}
	switch {
	case q.wait.index.prev != nil:
		q.wait.index.prev.wait.index.next = q.wait.index.next
	case q.wait.index.next != nil:
		x.missing[q.wait.index.block] = q.wait.index.next
	default:
		delete(x.missing, q.wait.index.block)
	}
	if q.wait.index.next != nil {
		q.wait.index.next.wait.index.prev = q.wait.index.prev
	}
	q.wait.index.next, q.wait.index.prev, q.wait.index.filed = nil, nil, false
}

// published notes that r has put its tokens [from, to) into the cache: it lists in
// x.pending the blocks of these tokens that some waiting sequence lacks.
func (x *index) published(r *sequence, from, to int) {
	r.wait.index.published = max(r.wait.index.published, to)
	if len(x.missing) == 0 {
		return
	}
	x.hash(r)
	for i := from / x.blockTokens; (i+1)*x.blockTokens <= to; i++ {
		if x.missing[r.wait.index.chain[i]] != nil {
			x.pending = append(x.pending, publishedBlock{r, i})
		}
	}
}

// next returns a waiting sequence that lacked a published block, and the number of its
// tokens that are cached now, in whole blocks; nil when there is none left. The caller must
// file the sequence again; otherwise next returns it again.
func (x *index) next() (q *sequence, cached int) {
	for len(x.pending) > 0 {
		n := x.pending[0]
		if q := x.missing[n.r.wait.index.chain[n.block]]; q != nil {
			to := n.block + 1
			for (to+1)*x.blockTokens <= n.r.wait.index.published && to < len(q.wait.index.chain) && q.wait.index.chain[to] == n.r.wait.index.chain[to] {
				to++
			}
			return q, to * x.blockTokens
		}
		x.pending[0] = publishedBlock{}
		x.pending = x.pending[1:]
	}
	x.pending = nil
	return nil, 0
}
