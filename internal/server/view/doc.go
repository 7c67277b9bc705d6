// Package view owns what a server shows: the figures (Stats), of which the page, the API and
// Prometheus are made, the Snapshot with lists and tree, the feed that samples a node while
// somebody watches, and the page. It changes nothing in the node, and Config.Access decides
// who may look.
//
// A Feed has one goroutine, which sleeps without watchers. Its methods may be called from any goroutine.
//
//	feed, err := view.NewFeed(view.Config{Source: node, Model: name, Text: view.Texts(node.Tokenizer())})
//	if err != nil {
//		return err
//	}
//	defer feed.Close()
//	mux.Handle("/", view.Handler(feed))
//	...
//	feed.Observe(view.Observation{TTFT: first}) // at the first token of an answer
//	feed.Observe(view.Observation{ITL: gap})    // for some of the tokens
//	feed.Finish(view.Finished{Tenant: tenant, PromptTokens: n, CachedTokens: c, OutputTokens: o})
package view
