package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/figures"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/tokenizer"
)

// cacheStats answers GET /v1/cache/stats. Admins see the figures of the node, and others those of
// their own tenant: the node's figures would show them the load and the prompts of other tenants.
func (c *call) cacheStats() error {
	st, err := c.s.stats(c.r.Context())
	if err != nil {
		return err
	}
	if !c.caller.admin {
		own := c.s.metrics.account(c.caller.tenant).read()
		for _, t := range st.Tenants {
			if t.Tenant == c.caller.tenant {
				own.Running, own.Waiting, own.ShareLeft = t.Running, t.Waiting, t.ShareLeft
			}
		}
		return c.marshal(own)
	}
	flat := figures.Flat(*st)
	if len(st.Tenants) == 0 {
		delete(flat, "tenants")
	}
	return c.marshal(flat)
}

// marshal answers with v as JSON.
func (c *call) marshal(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("server: encode an answer: %w", err)
	}
	return c.json(http.StatusOK, b)
}

// NodeFigures is a node in the answer of GET /v1/cache/tree.
type NodeFigures struct {
	ID     radixcache.NodeID `json:"id"`
	Parent radixcache.NodeID `json:"parent"` // 0 for the root of a namespace
	Model  string            `json:"model,omitempty"`
	LoRA   string            `json:"lora,omitempty"`
	Salted bool              `json:"salted"` // belongs to a tenant or has a cache_salt
	Start  int               `json:"start"`
	Tokens int               `json:"tokens"`
	First  []kv.Token        `json:"first,omitempty"`
	Text   string            `json:"text,omitempty"`
	Pages  int               `json:"pages"`
	Leaf   bool              `json:"leaf"`
	Tail   bool              `json:"tail"`
	Pins   int               `json:"pins"`
	Hits   uint64            `json:"hits"`
	Stamp  uint64            `json:"stamp"`
}

// maxNodeTokens limits the tokens shown per node; defaultNodeTokens is an admin's default.
const maxNodeTokens, defaultNodeTokens = 4096, 16

// cacheTree answers GET /v1/cache/tree. Admins see the whole tree, tenants the nodes of their
// own namespaces. Only admins see tokens.
func (c *call) cacheTree() error {
	q := coppice.TreeQuery{MaxNodes: c.s.cfg.TreeNodes}
	if c.caller.admin {
		q.TokensPerNode = defaultNodeTokens
	}
	nodes := 0
	for _, p := range []struct {
		name  string
		value *int
		most  int
	}{{"depth", &q.MaxDepth, 1 << 30}, {"nodes", &nodes, 1 << 30}, {"tokens", &q.TokensPerNode, maxNodeTokens}} {
		given := c.r.URL.Query()[p.name]
		if len(given) == 0 {
			continue
		}
		text := strings.Join(given, ",")
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > p.most {
			return conversation.NewError(http.StatusBadRequest, "invalid_value", "%s is %.20q, want 0 to %d", p.name, text, p.most).At(p.name)
		}
		*p.value = n
	}
	if nodes > 0 {
		q.MaxNodes = min(nodes, q.MaxNodes)
	}
	if q.TokensPerNode > 0 && !c.caller.admin {
		return conversation.ErrAdminOnly
	}
	tree, err := c.s.cfg.Node.Tree(c.r.Context(), q)
	if err != nil {
		return err
	}
	if !c.caller.admin { // the lengths of other tenants' prompts are private
		own := conversation.Namespace(c.caller.tenant, "").Salt
		all := len(tree.Nodes)
		tree.Nodes = slices.DeleteFunc(tree.Nodes, func(n coppice.TreeNode) bool { return !strings.HasPrefix(n.Namespace.Salt, own) })
		tree.Hidden += all - len(tree.Nodes)
	}
	return c.long(func(w *bufio.Writer) error { return writeTree(w, &tree, c.s.cfg.Node.Tokenizer()) })
}

// writeTree writes a tree as JSON, node by node: with many tokens in a node its text may be long. The nodes
// have texts if tok is not nil.
func writeTree(w *bufio.Writer, tree *coppice.Tree, tok *tokenizer.Tokenizer) error {
	w.WriteString(`{"nodes":[`)
	for i := range tree.Nodes {
		n := &tree.Nodes[i]
		v := NodeFigures{
			ID: n.ID, Parent: n.Parent, Model: n.Namespace.Model, LoRA: n.Namespace.LoRA, Salted: n.Namespace.Salt != "",
			Start: n.Start, Tokens: n.Tokens, First: n.First, Pages: n.Pages, Leaf: n.Leaf, Tail: n.Tail, Pins: n.Pins, Hits: n.Hits, Stamp: n.Stamp,
		}
		if tok != nil && len(n.First) > 0 {
			v.Text = string(tok.Decode(nil, n.First, false))
		}
		b, err := json.Marshal(&v)
		if err != nil {
			return fmt.Errorf("server: encode node %d: %w", v.ID, err)
		}
		if i > 0 {
			w.WriteByte(',')
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, `],"truncated":%d}`, tree.Hidden)
	return w.Flush()
}

// cacheFlush answers POST /v1/cache/flush and vLLM's /reset_prefix_cache.
func (c *call) cacheFlush() error {
	if err := c.s.cfg.Node.FlushCache(c.r.Context()); err != nil {
		return err
	}
	return c.json(http.StatusOK, bodyOK)
}

// cachePin answers POST /v1/cache/pin: it pins the cached prefix of a prompt, or what a session has left, for some
// time.
func (c *call) cachePin() error {
	return c.pin(openai.DecodePin, c.s.cfg.Node.PinSession, func(ctx context.Context, ns kv.Namespace, tokens []kv.Token, d time.Duration) error {
		return c.s.cfg.Node.PinPrefix(ctx, ns, tokens, d)
	})
}

// cacheUnpin answers DELETE /v1/cache/pin. It takes the same body as POST and ignores its
// seconds.
func (c *call) cacheUnpin() error {
	unpin := func(ctx context.Context, session coppice.SessionRef, _ time.Duration) (int, error) {
		return 0, c.s.cfg.Node.UnpinSession(ctx, session)
	}
	return c.pin(openai.DecodeUnpin, unpin, func(ctx context.Context, ns kv.Namespace, tokens []kv.Token, _ time.Duration) error {
		return c.s.cfg.Node.UnpinPrefix(ctx, ns, tokens)
	})
}

// pin reads the body of a request to pin or unpin with decode. It calls session with the session that the request names,
// or prefix with the namespace of the caller's own tenant and the request's cache_salt, and the tokens of the prompt. It
// answers with the number of tokens that were pinned or unpinned: those of the prompt, rounded down to whole pages, or
// those that session returns.
func (c *call) pin(
	decode func([]byte) (*openai.Pin, error),
	session func(context.Context, coppice.SessionRef, time.Duration) (int, error),
	prefix func(context.Context, kv.Namespace, []kv.Token, time.Duration) error,
) error {
	ask, err := read(c, decode)
	if err != nil {
		return err
	}
	if err := c.s.knows(ask.Model); err != nil {
		return err
	}
	if ask.Session != "" {
		tokens, err := session(c.r.Context(), c.session(ask.Session, ask.CacheSalt), ask.Duration)
		if err != nil {
			return err
		}
		return c.marshal(map[string]int{"pinned_tokens": tokens})
	}
	req := []coppice.Request{{Tokens: ask.Prompt.Tokens, Rendered: !ask.AddSpecialTokens}}
	if ask.Prompt.Tokens == nil {
		req[0].Prompt = ask.Prompt.Text
	}
	if err := c.encode(req); err != nil {
		return err
	}
	if err := prefix(c.r.Context(), conversation.Namespace(c.caller.tenant, ask.CacheSalt), req[0].Tokens, ask.Duration); err != nil {
		return err
	}
	page := c.s.cfg.Node.Info().PageTokens
	return c.marshal(map[string]int{"pinned_tokens": kv.FloorPages(len(req[0].Tokens), page) * page})
}

// cacheRelease answers POST /v1/cache/release: a session of the caller takes no further turn.
func (c *call) cacheRelease() error {
	return c.hint(openai.DecodeRelease, func(session coppice.SessionRef, _ time.Duration) (any, error) {
		return nil, c.s.cfg.Node.ReleaseSession(c.r.Context(), session)
	})
}

// cacheExpect answers POST /v1/cache/expect: a turn of a session of the caller comes in some time.
func (c *call) cacheExpect() error {
	return c.hint(openai.DecodeExpect, func(session coppice.SessionRef, in time.Duration) (any, error) {
		return nil, c.s.cfg.Node.ExpectSession(c.r.Context(), session, in)
	})
}

// cachePark answers POST /v1/cache/park: what the last turn of a session of the caller left goes to a lower tier, off the device.
func (c *call) cachePark() error {
	return c.hint(openai.DecodeRelease, func(session coppice.SessionRef, _ time.Duration) (any, error) {
		p, err := c.s.cfg.Node.ParkSession(c.r.Context(), session)
		return parkedAnswer{p.Tokens, p.Tier.String()}, err
	})
}

// parkedAnswer is the answer of POST /v1/cache/park.
type parkedAnswer struct {
	Tokens int    `json:"parked_tokens"`
	Tier   string `json:"tier"`
}

// parkedSession is a session in the answer of GET /v1/cache/parked.
type parkedSession struct {
	Session string `json:"session"`
	Tokens  int    `json:"tokens"`
}

// cacheParked answers GET /v1/cache/parked: the caller's parked sessions, of requests with the cache_salt that the query names.
func (c *call) cacheParked() error {
	all, err := c.s.cfg.Node.ParkedSessions()
	if err != nil {
		return err
	}
	list, ns := []parkedSession{}, c.session("", c.r.URL.Query().Get("cache_salt")).Namespace
	for _, p := range all {
		if p.Tenant == c.caller.tenant && p.Namespace == ns {
			list = append(list, parkedSession{p.Name, p.Tokens})
		}
	}
	slices.SortFunc(list, func(a, b parkedSession) int { return strings.Compare(a.Session, b.Session) })
	return c.marshal(map[string][]parkedSession{"sessions": list})
}

// hint reads a request about a session with decode, calls take, and answers with what take returns, or bodyOK if that is nil.
func (c *call) hint(decode func([]byte) (*openai.SessionHint, error), take func(coppice.SessionRef, time.Duration) (answer any, err error)) error {
	ask, err := read(c, decode)
	if err != nil {
		return err
	}
	if err := c.s.knows(ask.Model); err != nil {
		return err
	}
	answer, err := take(c.session(ask.Session, ask.CacheSalt), ask.Duration)
	switch {
	case err != nil:
		return err
	case answer == nil:
		return c.json(http.StatusOK, bodyOK)
	}
	return c.marshal(answer)
}

// session returns the session with a name among those of the caller.
func (c *call) session(name, cacheSalt string) coppice.SessionRef {
	return coppice.SessionRef{Namespace: conversation.Namespace(c.caller.tenant, cacheSalt), Tenant: c.caller.tenant, Name: name}
}

// explanation is the answer of POST /v1/cache/explain.
type explanation struct {
	Text           string         `json:"text"` // all of it in sentences
	PromptTokens   int            `json:"prompt_tokens"`
	CachedByTier   map[string]int `json:"cached_tokens_by_tier"`
	MatchedTokens  int            `json:"matched_tokens"` // whole pages on the device
	Why            string         `json:"why"`            // the match ends there
	Removed        *removal       `json:"removed,omitempty"`
	CopiedTokens   int            `json:"copied_tokens"`
	FetchedTokens  int            `json:"fetched_tokens"`
	ComputedTokens int            `json:"computed_tokens"`
}

// removal describes how the page after the match left the device, if it was there.
type removal struct {
	Reason         string `json:"reason"`
	Policy         string `json:"policy"`
	AccessesAgo    uint64 `json:"accesses_ago"`
	UnusedAccesses uint64 `json:"unused_accesses"`
}

// explain answers POST /v1/cache/explain: why the prompt of a request misses the cache, and what the
// request would run. The prompt is looked up in the namespace that the caller's own request would
// have, so that the answer tells nothing of other tenants.
func (c *call) explain() error {
	ask, err := read(c, func(b []byte) (*openai.Explain, error) { return openai.DecodeExplain(b, c.s.policies.reading) })
	if err != nil {
		return err
	}
	leave, err := c.s.cfg.Node.Enter()
	if err != nil {
		return err
	}
	defer leave()
	p := ask.Params()
	if err := c.accept(p, 1); err != nil {
		return err
	}
	reqs := make([]coppice.Request, 1)
	switch {
	case ask.Chat != nil:
		reqs[0], err = c.turnRequest(&ask.Chat.Turn)
	case len(ask.Completion.Prompts) > 1:
		err = conversation.NewError(http.StatusBadRequest, "invalid_value", "prompt has %d prompts, want one", len(ask.Completion.Prompts)).At("prompt")
	default:
		reqs[0], err = c.s.completionRequest(ask.Completion, 0)
	}
	if err != nil {
		return err
	}
	c.prepare(&reqs[0], p)
	if err := c.encode(reqs); err != nil {
		return blame(p, err)
	}
	e, err := c.s.cfg.Node.Explain(c.r.Context(), reqs[0])
	if err != nil {
		return blame(p, err)
	}
	return c.marshal(explanationOf(&e))
}

func explanationOf(e *scheduler.Explanation) explanation {
	d := &e.Device
	a := explanation{
		Text: e.String(), PromptTokens: e.PromptTokens, CachedByTier: map[string]int{}, MatchedTokens: d.Tokens, Why: d.Why.String(),
		CopiedTokens: e.CopiedTokens, FetchedTokens: e.FetchedTokens, ComputedTokens: e.ComputedTokens,
	}
	for tier, n := range e.Cached {
		if n > 0 || tier == int(kv.TierDevice) {
			a.CachedByTier[kv.Tier(tier).String()] = n
		}
	}
	if d.Why == radixcache.WhyEvicted {
		a.Removed = &removal{d.Reason.String(), d.Policy.String(), d.Ago, d.Unused}
	}
	return a
}
