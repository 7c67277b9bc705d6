package schedtest

import (
	"math"
	"slices"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// salts checks that a request reads pages of a request with another namespace only for tokens
// that both declare public. It has no events of its own: failed knows the pages, and asks it.
type salts struct{ watcher }

// reads checks that s may read the first tokens, as many as n says, of a page that begins at
// position at. The owner of a page may have copied its first tokens from a page of its own
// salt, and declare public what that one kept private.
func (c *salts) reads(s *sample, page *content, at, n int) {
	if s == nil || page == nil || page.owner == nil {
		return
	}
	if at+n > public(s, page.owner, c.r.info.PageTokens) {
		c.failf("%s of namespace %+v reads the tokens [%d,%d) of a page of %s, whose namespace is %+v",
			label(s), s.of.req.Namespace, at, at+n, label(page.owner), page.owner.of.req.Namespace)
	}
}

// holder returns the sample that is bound in p with the page id among its own, and the page's
// position in tokens.
func (c *salts) holder(p *scheduler.Plan, id kv.PageID) (s *sample, at int) {
	for bind, s := range c.r.book.bound(&p.Batch) {
		if at := slices.Index(bind.Pages, id); at >= 0 {
			return s, at * c.r.info.PageTokens
		}
	}
	return nil, 0
}

// public returns how many leading tokens a and b may share.
func public(a, b *sample, pageTokens int) int {
	x, y := a.of.req.Namespace, b.of.req.Namespace
	if x == y {
		return math.MaxInt
	}
	if x.Model != y.Model || x.LoRA != y.LoRA {
		return 0
	}
	n := math.MaxInt
	for _, s := range [...]*sample{a, b} {
		if req := &s.of.req; req.Namespace.Salt != "" {
			whole := min(req.PublicTokens, len(req.Prompt))
			n = min(n, whole-whole%pageTokens)
		}
	}
	return n
}
