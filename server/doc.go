// Package server owns the HTTP side of a node: routes, keys and their tenants, limits, the
// writing of streams, metrics, traces and the order of shutdown. It never schedules, knows no
// field of a request (package openai does), and uses a [coppice.Node] only through its public
// methods.
//
// One goroutine serves a request, from its first byte to its last; a completion of several
// prompts has one more for each. The node merges pieces for a client that reads slowly, so no
// buffer grows here. A client that reads nothing for [Config.WriteTimeout], or disconnects, ends
// its request and so frees its pages.
//
//	srv, err := server.New(server.Config{Node: node, Model: "llama", Template: template})
//	if err != nil {
//		return err
//	}
//	go srv.Serve(listener) // or mount srv, an http.Handler, elsewhere
//	...
//	err = srv.Shutdown(ctx) // requests may end until ctx does; then the node may close
//
// Tenants. A key names a tenant. Its requests count against the tenant's limits and share (see
// scheduler.Config.Tenants), and their prefixes are cached in the tenant's namespace, divided
// further by cache_salt. Two tenants share cached prefixes only under equal salts that begin
// with "shared:". See [Namespace].
package server
