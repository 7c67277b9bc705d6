// Package missratio owns the miss-ratio curve of a prefix cache: the hit rate
// by tokens that a cache of any size would have had on the requests seen, under
// LRU eviction. It never caches anything, never decides anything, and keeps no
// tokens. One goroutine owns a [Curve]; its memory is fixed by [Curve.Begin].
//
// A request is a walk over blocks, each named by the hash of all tokens up to
// its end. A walk makes shallow blocks more recent than deep ones, so a cache of
// any size holds whole prefixes. A token is a hit in a cache of C tokens if the
// token and the distinct tokens touched since its last walk are at most C (Mattson
// et al., IBM Systems Journal 9(2), 1970). Example: requests A, B, A of 1,000
// tokens each, with nothing in common. In a cache of 2,000 tokens or more
// all of the second A is a hit, in one of 1,000 none of it.
//
// As in SHARDS (Waldspurger et al., FAST 2015) a block is tracked if its hash is
// below a threshold, which falls when too many are tracked. With all blocks
// tracked the curve is exact up to the block at which a request forks. Otherwise
// it is an estimate, and differs from SHARDS in four ways. The reason for them:
// a hot prefix is few blocks that count in nearly all requests, and the result
// must not depend on whether these happen to be sampled.
//
//   - Blocks between two sampled ones of the same last walk have that last walk
//     too. So sampled blocks are points that bound runs, and tokens are counted
//     by runs, not by blocks times a weight. Distances are sums over runs as well.
//   - The threshold falls with depth, so that prefixes that many requests share
//     stay well known.
//   - Where a run ends is estimated from the deeper side. In the mean the first
//     sampled block of a run is 1/rate blocks inside it. That side has other
//     blocks each time, so errors cancel, while the shallow side would repeat
//     its error in each request. Estimates are cut to the possible range, and the
//     cut is carried over to later requests. SHARDS-adj has the same aim: the sum
//     of misses stays right.
//   - The end of a walk is kept as a hash, so a conversation that continues is
//     known to fork exactly there, also within a block.
//
// A request forks within a block half a block deep on average; its last, partial
// block is assumed to be shared or not as the fork's estimate says. In the first
// few hundred tokens blocks are shorter, so that requests that all fork after a
// short common prompt are not all guessed wrong. Shared tokens are rounded down
// to whole pages, as a cache of pages holds no more.
//
//	curve := missratio.New(missratio.DefaultSamples) // the Curve of a radixcache.Config, which makes the calls
//	err := curve.Begin(pageTokens)
//	curve.Access(ns, tokens) // for each request when it ends
//	rates := curve.Rates([]int{capacityTokens, 2 * capacityTokens}, nil)
package missratio
