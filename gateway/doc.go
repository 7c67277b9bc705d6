// Package gateway owns the HTTP side of a fleet: an OpenAI-compatible reverse proxy that sends
// each request to the worker with the lowest predicted cost, forwards the answer as it streams,
// and keeps the list of workers and of their cached blocks. It never runs a model, changes only
// its own headers of requests and answers, and leaves every choice of a worker to package
// router.
//
// A request is read once (gateway/internal/prompt). Its blocks are looked up in the index of the
// workers' events (gateway/internal/residency) and of guesses from earlier choices; then a worker is
// chosen and reserved in one step. The request is forwarded unchanged. If the worker fails before it
// has begun to compute the request, another one is asked; after that, the request ends with an error.
// With pools, a pool is chosen first, by the request's length and targets (gateway/internal/global) or
// as a bucket (router.Buckets), and then a worker in it.
//
// Every worker has one goroutine, its keeper, which probes it and follows its events. One mutex
// guards the router; it is held for microseconds.
//
//	g, err := gateway.New(gateway.Config{
//		Workers: []gateway.WorkerConfig{{URL: "http://10.0.0.1:8080"}, {URL: "http://10.0.0.2:8080"}},
//		Prompt:  prompt.Config{Tokenizer: tok, Template: tmpl, Namespace: openai.Namespace},
//	})
//	go g.Serve(listener)
//	defer g.Close()
package gateway
