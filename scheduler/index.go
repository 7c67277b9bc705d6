package scheduler

import "github.com/coppice-llm/coppice/kv"

const (
	// indexTokens is the block size of the index: shorter growth is not worth a
	// change of order.
	indexTokens = 64
	// rerankPerStep bounds how many waiting sequences a step ranks anew because more
	// of them is cached; the next steps go on.
	rerankPerStep = 256
)

// index knows which waiting sequences lack a block: each is filed under the first
// block of it that is not cached, by the hash of all its tokens up to there.
type index struct {
	blockTokens int // 0: there is no cache
	missing     map[kv.BlockHash]*sequence
	pending     []publishedBlock // that reranking has not come to yet
}

// publishedBlock is a block that some waiting sequence lacked and r has published.
type publishedBlock struct {
	r     *sequence
	block int
}

// indexing is a sequence's part of it.
type indexing struct {
	chain     []kv.BlockHash // hash of each whole block of tokens, chained
	block     kv.BlockHash   // key under which it is filed
	filed     bool
	next      *sequence // filed under the same block
	prev      *sequence
	published int // tokens that it has put into the cache
}

func newIndex(pageTokens int) index {
	return index{blockTokens: max(indexTokens, pageTokens), missing: make(map[kv.BlockHash]*sequence)}
}

// hash extends the chain of q's blocks over the tokens that it has. Samples of one
// request share what they can.
func (x *index) hash(q *sequence) {
	if (len(q.chain)+1)*x.blockTokens > len(q.tokens) {
		return
	}
	if q.chain == nil {
		if first := q.group.samples[0]; first != q && len(first.chain) > 0 {
			n := min(len(first.chain), q.prompt/x.blockTokens)
			q.chain = first.chain[:n:n]
		} else {
			q.chain = make([]kv.BlockHash, 0, len(q.tokens)/x.blockTokens)
		}
	}
	seed := q.req.Namespace.Seed()
	for lo := len(q.chain) * x.blockTokens; lo+x.blockTokens <= len(q.tokens); lo += x.blockTokens {
		local := kv.HashLocal(q.tokens[lo:lo+x.blockTokens], seed)
		h := kv.BlockHash(local)
		if n := len(q.chain); n > 0 {
			h = kv.Chain(q.chain[n-1], local)
		}
		q.chain = append(q.chain, h)
	}
}

// file puts q under its first block that is not cached.
func (x *index) file(q *sequence) {
	x.hash(q)
	i := q.cached / x.blockTokens
	// The last token is always computed, so the block that it ends is never cached.
	missing := (i+1)*x.blockTokens < len(q.tokens)
	if q.filed && missing && q.block == q.chain[i] {
		return
	}
	x.drop(q)
	if !missing {
		return
	}
	q.block, q.filed = q.chain[i], true
	first := x.missing[q.block]
	q.next = first
	if first != nil {
		first.prev = q
	}
	x.missing[q.block] = q
}

func (x *index) drop(q *sequence) {
	if !q.filed {
		return
	}
	switch {
	case q.prev != nil:
		q.prev.next = q.next
	case q.next != nil:
		x.missing[q.block] = q.next
	default:
		delete(x.missing, q.block)
	}
	if q.next != nil {
		q.next.prev = q.prev
	}
	q.next, q.prev, q.filed = nil, nil, false
}

// published notes the blocks within tokens [from, to) of r that somebody lacks.
func (x *index) published(r *sequence, from, to int) {
	r.published = max(r.published, to)
	if len(x.missing) == 0 {
		return
	}
	x.hash(r)
	for i := from / x.blockTokens; (i+1)*x.blockTokens <= to; i++ {
		if x.missing[r.chain[i]] != nil {
			x.pending = append(x.pending, publishedBlock{r, i})
		}
	}
}

// next returns a sequence that lacked a block which was published, and how many of its
// tokens are cached now, as far as the blocks tell; nil when there is none left. The
// caller files it anew.
func (x *index) next() (q *sequence, cached int) {
	for len(x.pending) > 0 {
		n := x.pending[0]
		if q := x.missing[n.r.chain[n.block]]; q != nil {
			to := n.block + 1
			for (to+1)*x.blockTokens <= n.r.published && to < len(q.chain) && q.chain[to] == n.r.chain[to] {
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
