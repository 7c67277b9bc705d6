package server

import (
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/anthropic"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/server/internal/prefixbreak"
)

// prefixHeader, in an answer, says that the request breaks the prefix that its session had, and how.
const prefixHeader = "X-Coppice-Prefix-Break"

// Bounds of what is remembered to notice broken prefixes: sessions, their bytes, and the share of the node's memory
// for requests that these may take. 32 MiB hold the last prompts of 60 sessions of 140,000 tokens.
const (
	watchSessions    = 4096
	watchBytes       = 32 << 20
	watchMemoryShare = 16
)

// newWatch returns the watch for broken prefixes of a node with this memory.
func newWatch(memory *coppice.Memory) *prefixbreak.Watch {
	return prefixbreak.New(prefixbreak.Config{Sessions: watchSessions, Bytes: int(min(watchBytes, memory.Most()/watchMemoryShare)), Memory: memory})
}

// followed is the turn of a request, and how it broke the prefix of its session.
type followed struct {
	turn  *prefixbreak.Turn // nil: the request is no conversation
	key   prefixbreak.Key
	broke *prefixbreak.Break // nil: it did not
}

// said describes the break for the live page, "" if there is none. It has no text of prompts.
func (w *followed) said() string {
	if w.broke == nil {
		return ""
	}
	return w.broke.String()
}

// watch prepares the comparison of a turn with the last one of its session.
func (c *call) watch(ask *conversation.Turn) {
	if !c.s.cfg.NoPrefixWatch {
		session := ask.Session
		if strings.HasPrefix(session, anthropic.Unnamed) {
			session = "" // a prompt with another beginning has another such name
		}
		c.followed = followed{turn: prefixbreak.NewTurn(ask.Messages, ask.Options.Tools), key: prefixbreak.Key{Tenant: c.caller.tenant, Salt: ask.CacheSalt, Session: session}}
	}
}

// checkPrefix compares the turn of a request with the last one of its session. A client that breaks its own prefix is
// told so by a header of the answer; each time counts in the metrics, and the first one of a session for its cause is
// logged.
func (c *call) checkPrefix(reqs []coppice.Request) error {
	w, tok := &c.followed, c.s.cfg.Node.Tokenizer()
	if w.turn == nil {
		return nil
	}
	if w.broke = c.s.breaks.Check(w.key, w.turn); w.broke == nil {
		return nil
	}
	if err := c.encode(reqs); err != nil {
		return err
	}
	b := w.broke
	c.s.breaks.Locate(b, reqs[0].Tokens, func(tokens []kv.Token) string { return string(tok.Decode(nil, tokens, false)) })
	said := b.String()
	if b.Was != "" || b.Is != "" {
		said += ": was " + strconv.QuoteToASCII(b.Was) + ", is " + strconv.QuoteToASCII(b.Is)
	}
	c.w.Header().Set(prefixHeader, said)
	c.s.metrics.PrefixBreaks.WithLabelValues(b.Cause.String()).Inc()
	c.s.metrics.PrefixTokens.WithLabelValues(b.Cause.String()).Add(float64(b.Cost))
	if b.First {
		c.s.log.Warn("a client breaks the prefix of its own conversation, so the cache can't be used", zap.String("request", c.id),
			zap.String("tenant", c.caller.tenant), zap.Stringer("cause", b.Cause), zap.Int("token", b.Token), zap.Int("tokens", b.Cost))
	}
	return nil
}

// keepPrefix remembers the turn of a request whose prompt has been computed.
func (c *call) keepPrefix(e *coppice.Ending) {
	w := &c.followed
	if w.turn != nil && e.CachedTokens+e.ComputedTokens > 0 && len(e.Tokens) >= e.PromptTokens {
		c.s.breaks.Keep(w.key, w.turn, w.broke, e.Tokens[:e.PromptTokens])
		w.turn = nil
	}
}
