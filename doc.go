// Package coppice is an LLM inference scheduler for Go programs: requests that
// share a prefix share its KV cache, token by token, and only what is new gets
// computed.
//
// Open a [Node] around a backend, range over Generate, read Stats, Close. This
// package is the face of the house and holds no logic; the life of a request
// begins in package actors and is decided in package scheduler.
//
//	m, err := model.Open("path/to/model")
//	backend, err := cpu.Open(m, cpu.Config{KVTokens: 1 << 16})
//	node, err := coppice.Open(coppice.Config{Backend: backend, Tokenizer: m.Tokenizer()})
//	defer node.Close()
//	for piece, err := range node.Generate(ctx, coppice.Request{Prompt: "Once"}) {
//		if err != nil {
//			return err
//		}
//		fmt.Print(piece.Text)
//	}
//
// With Request.Samples a prompt is computed once and continued several times; each
// [Piece] names its Sample. Timeouts, tenants and priorities are fields of
// [Request], the policy and the limits fields of Config.Scheduler.
//
// A Node may be used from any number of goroutines.
package coppice
