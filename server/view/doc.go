// Package view owns what people see of a server: the Snapshot, the feed that samples
// it while somebody watches, and the page that draws it. It never changes what it
// looks at, and never decides who may look: Config.Access does.
//
// A Feed has one goroutine. Without watchers it sleeps, and costs what Observe costs.
// Its methods may be called from all goroutines.
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
