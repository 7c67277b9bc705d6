// Package sites owns which names a server answers to and which web pages may call it. It
// protects a server on a reachable address from browsers that a page misuses: by DNS
// rebinding, where a page's own name suddenly points to the server, and by requests across
// origins. It never looks at keys and never writes a body.
//
// A Policy is immutable: any number of goroutines may use one.
//
//	policy, err := sites.New(sites.Config{AnyHost: len(keys) > 0, AllowHosts: []string{"llm.example.com"}})
//	if err != nil {
//		return err
//	}
//	...
//	preflight, refusal := policy.Check(w.Header(), r)
//	switch {
//	case refusal != nil:
//		http.Error(w, refusal.Message, http.StatusForbidden)
//		return
//	case preflight:
//		w.WriteHeader(http.StatusNoContent)
//		return
//	}
package sites
