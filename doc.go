// Package coppice is an LLM inference scheduler for Go programs: requests that share a prefix
// share its KV cache, token by token, and only the rest is computed.
//
// Package local opens a model from a directory or a GGUF file on this machine's processors, with
// defaults for everything; [Open] starts a [Node] around any backend.
//
//	node, err := local.Open("path/to/model", local.Options{})
//	defer node.Close()
//	ask := coppice.ChatOptions{Request: coppice.Request{Sampling: node.Sampling}} // as the model recommends
//	answer, err := node.Chat(ctx, []chat.Message{{Role: "user", Content: "What is light?"}}, ask)
//	fmt.Println(answer.Text)
//	results, err := node.Batch(ctx, []coppice.Request{{Prompt: "Once"}, {Prompt: "Once more"}})
//	for piece, err := range node.Generate(ctx, coppice.Request{Prompt: "Once"}) { // as it comes
//		fmt.Print(piece.Text)
//	}
//
// [Node.Text], [Node.Batch] and [Node.Chat] wait for results; [Node.Generate] and [Node.Stream]
// give pieces as they come. With Request.Samples a prompt is computed once and continued several
// times. Time limits, tenants and priorities are fields of [Request]; policy and limits are
// fields of Config.Scheduler.
//
// Package fleet makes a Node a worker that routers find, package server answers HTTP. This
// package holds no logic of its own: package actors runs a request, package scheduler decides
// about it. A Node may be used from any number of goroutines.
package coppice
