package server

import (
	"net/http"
	"time"

	"github.com/coppice-llm/coppice/server/view"
)

// newFeed returns the feed of the live page of s.
func newFeed(s *Server) *view.Feed {
	return view.NewFeed(view.Config{
		Source: s.cfg.Node, Model: s.cfg.Model, Version: s.cfg.Version, Note: s.cfg.PageNote, Text: view.Texts(s.cfg.Node.Tokenizer()),
		Access: func(r *http.Request) (view.Access, string) {
			tenant, admin, err := s.keys.Find(r)
			switch {
			case err != nil:
				return view.Denied, ""
			case admin:
				return view.Full, tenant
			default:
				return view.Redacted, tenant
			}
		},
	})
}

// finished reports a finished request for tokens to the live page. total is the time from the
// request's arrival to the end of its answer.
func (c *call) finished(total time.Duration) {
	if c.s.feed == nil {
		return
	}
	c.s.feed.Finish(view.Finished{
		Tenant: c.caller.tenant, Reason: c.bill.reason.String(),
		PromptTokens: c.bill.promptTokens, CachedTokens: c.bill.cachedTokens, OutputTokens: c.bill.outputTokens,
		TTFTMillis: millis(c.bill.firstToken), TotalMillis: millis(total),
	})
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
