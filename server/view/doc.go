// Package view owns the figures that a server shows (Stats: for the page, the API and
// Prometheus), the State with its lists and tree, the feed that samples a node while there are
// watchers, and the page. It never changes the node. Config.Access decides which callers may
// look.
//
// A Feed has one goroutine, which sleeps without watchers. Its methods may be called from any goroutine.
//
//	feed := view.NewFeed(view.Config{Source: node, Model: name, Text: view.Texts(node.Tokenizer())})
//	defer feed.Close()
//	mux.Handle("/", view.Handler(feed))
//	...
//	feed.Observe(view.Observation{TTFT: first}) // at the first token of an answer
//	feed.Observe(view.Observation{ITL: gap})    // for some of the tokens
//	feed.Finish(view.Finished{Tenant: tenant, PromptTokens: n, CachedTokens: c, OutputTokens: o})
package view
