// Package server owns the HTTP side of a node: routes, keys and the tenants behind
// them, limits, the writing of streams, metrics, traces and the way in which all of it
// ends. It never schedules, knows no field of a request (package openai does), and does
// nothing to a [coppice.Node] that another embedder could not.
//
// One goroutine serves a request, from its first byte to its last; a completion of
// several prompts has one more for each. What a node has for a client that reads slowly
// merges in the node, so nothing grows here; a client that takes nothing for
// [Config.WriteTimeout], or goes, ends its request and frees its pages.
//
//	srv, err := server.New(server.Config{Node: node, Model: "llama", Template: template})
//	if err != nil {
//		return err
//	}
//	go srv.Serve(listener) // or mount srv, an http.Handler, elsewhere
//	...
//	err = srv.Shutdown(ctx) // requests may end until ctx does; then the node may close
//
// Tenants. A key names a tenant, on whose account its requests run (see
// scheduler.Config.Tenants for limits and shares) and in whose namespace they find and
// leave their prefixes, divided by cache_salt. Two tenants share nothing but under a
// cache_salt that both begin with "shared:". See [Namespace].
package server
