// Package gateway owns the HTTP face of a fleet: an OpenAI-compatible reverse proxy that
// sends each request to the worker where it is answered soonest, streams the answer
// through, and knows at any time which workers there are and what they hold. It never
// runs a model, changes no request and no answer but for headers of its own, and decides
// nothing that package router can decide.
//
// A request is read once (internal/gateway/prompt), its blocks are looked up in what the workers'
// events told (internal/gateway/residency) and in what was guessed from earlier choices, and a
// worker is chosen and reserved in one step. It goes there as it came. If the worker
// fails before it has begun to compute the request, another one is asked; after that the
// request ends with an error.
// Where workers are in pools, one of these is chosen first, by the request's length and
// targets (internal/router/global) or as a bucket (router.Buckets), and the worker within it.
//
// Every worker has one goroutine, its keeper, which asks it how it is and follows its
// events. The router is behind one mutex, for microseconds at a time.
//
//	g, err := gateway.New(gateway.Config{
//		Workers: []gateway.Worker{{URL: "http://10.0.0.1:8080"}, {URL: "http://10.0.0.2:8080"}},
//		Prompt:  prompt.Config{Tokenizer: tok, Template: tmpl, Namespace: openai.Namespace},
//	})
//	go g.Serve(listener)
//	defer g.Close()
package gateway
