package scheduler

import (
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool/tiering"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler/internal/drafts"
	"github.com/coppice-llm/coppice/scheduler/internal/planted"
)

// prefixes connects sequences with the cache: it finds the prefix of a waiting sequence,
// publishes the KV of running ones, and hides KV that may be wrong. Without a cache its
// methods find and do nothing.
type prefixes struct {
	cfg     *Config
	cache   *radixcache.Cache // nil: none
	room    *room
	queue   *queue
	running *runningSet
	plans   *plans
	fetches *fetches      // nil: no tiers below the device
	texts   *drafts.Texts // nil: nothing uses what followed in other requests
}

// found is the part of a waiting sequence's tokens whose KV exists: whole pages, and after
// these a boundary within a page, which must be copied because the sequence will write to
// the rest of the page. With pages of 16 and 100 tokens in common it is 6 pages and a
// boundary of 4.
type found struct {
	match    radixcache.Match // whole pages in the cache
	from     *sequence        // the running owner of the boundary page; nil: the tree has it
	boundary int              // tokens to copy from that page
}

// find looks for the KV of q's tokens in the cache and in running sequences. It changes
// only what the queue knows of q's match.
func (x *prefixes) find(q *sequence) (f found) {
	f.match = x.queue.lookup(q)
	f.from, f.boundary = x.openPage(q, f.match)
	return f
}

// openPage looks for KV that continues m, q's match in the cache, within the next page. It
// returns the running sequence r whose last page, which is not in the tree yet, has most
// leading tokens in common with q there, and the number of these tokens, which q may copy.
// If no such page has more of them than the partial page of m, r is nil and tokens is the
// number that q may copy from that partial page.
func (x *prefixes) openPage(q *sequence, m radixcache.Match) (r *sequence, tokens int) {
	if x.cache == nil {
		return nil, 0
	}
	at, most := m.Tokens, q.matchable()
	tokens = m.Partial.Tokens
	for _, o := range x.running.all {
		if o.table.pin != m.Node || o.known() <= at+tokens || o.table.shared*x.room.pageTokens != at || at >= q.sharable(o, x.room.pageTokens) || o == q || x.flushedSince(o) || o.cache.doubtful {
			continue
		}
		end := min(o.known(), at+x.room.pageTokens)
		if n := q.shares(o, at, o.tokens[at:end], q.tokens[at:most]); n > tokens {
			r, tokens = o, n
		}
	}
	return r, tokens
}

// publishChunk puts the computed part of q's prompt into the cache, and releases those
// followers that wait for no more tokens than are computed. Publishing by chunk lets
// followers and later requests use a long prompt before it is complete.
func (x *prefixes) publishChunk(q *sequence) {
	x.publish(q, q.done, false)
	if q.done == q.target {
		x.running.prefilling = remove(x.running.prefilling, q)
	}
	if len(q.wait.follow.followers) > 0 {
		x.queue.release(q, q.done, q.done == q.target)
	}
}

// publish inserts the first tokens of q, as many as valid says, into the cache: whole
// pages, and with tail set also the last page that is not full, which q must not write to
// afterwards. Where the tree has the same tokens already, q takes the tree's pages and its
// own are freed. publish does nothing for a sequence that was admitted before a flush, or
// is doubtful.
func (x *prefixes) publish(q *sequence, valid int, tail bool) {
	if x.cache == nil || x.flushedSince(q) || x.doubtful(q, valid) {
		return
	}
	valid = q.wholeMedia(valid)
	if !tail {
		valid -= valid % x.room.pageTokens
	}
	n := kv.CeilPages(valid, x.room.pageTokens)
	if n <= q.table.shared {
		return
	}
	// Extend may rewrite the list it gets, and plans in flight alias q's own.
	x.room.lent = append(x.room.lent[:0], q.table.pages[:n]...)
	pin, freed := x.cache.Extend(q.table.pin, q.key(valid), x.room.lent, x.room.freed[:0])
	x.room.reclaim(freed)
	rankPrefix(x.cache, pin, q)
	for i := q.table.shared; i < n; i++ {
		if id := x.room.lent[i]; id != kv.NoPage && x.room.lease.Held(id) {
			x.room.lease.Publish(x.room.lent[i : i+1])
		}
	}
	if !slices.Equal(x.room.lent[q.table.shared:], q.table.pages[q.table.shared:n]) {
		if x.plans.read(q) {
			q.table.pages = slices.Clone(q.table.pages)
		}
		x.room.swap(q, x.room.lent)
		q.cache.swapped, q.cache.vouches = x.plans.last, false
	}
	from := q.table.shared * x.room.pageTokens
	q.table.pin, q.table.shared = pin, n
	x.queue.published(q, from, valid)
	x.index(q, from, valid)
	x.fetches.published(q, valid)
}

// publishAll publishes the KV of q and of drafts after it, right or not, as the fault KeepRefused has it.
func (x *prefixes) publishAll(q *sequence, drafts []kv.Token) {
	tokens := q.tokens
	q.tokens = slices.Concat(tokens, drafts)
	x.publish(q, len(q.tokens), false)
	q.tokens = tokens
}

// index adds the tokens [from, to) of q, which are in the tree now, to those that guesses of other
// requests of its namespace may come from. Public tokens, which other salts see, are left out, and whole
// requests with media, whose placeholders mean nothing to others.
func (x *prefixes) index(q *sequence, from, to int) {
	to -= to % x.room.pageTokens // the node of pin ends there
	if n := q.publicTokens(x.room.pageTokens); q.req.Namespace.Salt != "" && x.room.fault != planted.ForeignDraft {
		from = max(from, n)
	}
	if x.texts != nil && len(q.req.Media) == 0 && from < to {
		q.cache.text = x.texts.Add(q.cache.text, q.req.Namespace, q.tokens, from, to, q.table.pin)
	}
}

// published lets the fetches end, at the next settle, whose whole prefix is among the first tokens of q,
// as many as valid says: they are in the tree now.
func (fs *fetches) published(q *sequence, valid int) {
	if fs == nil {
		return
	}
	for _, r := range fs.waiting {
		end := r.fetch.parts[len(r.fetch.parts)-1].end()
		// Nearly always one comparison decides: the last token that r fetches differs.
		if valid >= end && q.tokens[end-1] == r.tokens[end-1] && min(r.shares(q, 0, q.tokens[:valid], r.tokens[:end]), r.together(q, fs.room.pageTokens)) >= end {
			r.fetch.until = min(r.fetch.until, fs.tiers.now)
		}
	}
}

// flushedSince reports whether the cache was flushed since q was admitted. Part of q's KV
// is from before the flush, so no other sequence may use it.
func (x *prefixes) flushedSince(q *sequence) bool {
	return x.cache != nil && q.cache.epoch != x.cache.Epoch()
}

// expire unpins prefixes whose time of PinPrefix is over, and evicts prefixes that were not
// used for Config.CacheTTL.
func (x *prefixes) expire(now time.Duration) {
	if x.cache != nil && (x.cfg.PinnedTokens > 0 || x.cfg.CacheTTL > 0) {
		x.room.reclaimAs(x.cache.Expire(now, x.room.freed[:0]), tiering.Forgotten)
		x.room.keepQuotas()
	}
}

// rankPrefix raises the priority of the prefix that handle pins to that of q's request. A
// prefix begins with priority 0, so requests of priority 0 or less change nothing.
func rankPrefix(c *radixcache.Cache, handle radixcache.NodeID, q *sequence) {
	if q.req.Priority > 0 { // a prefix begins with priority 0
		c.Prioritize(handle, q.req.Priority)
	}
}
