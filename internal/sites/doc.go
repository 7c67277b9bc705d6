// Package sites decides which host names a server answers to and which web pages may call it. It
// protects the server from pages that use a visitor's browser to reach it: by DNS rebinding, where
// the page's own host name is made to resolve to the server's address, and by cross-origin requests.
// It owns that policy. It never reads keys and never writes a body.
//
// A Policy is immutable and may be used by any number of goroutines.
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
//
// Before a request takes one of a few places, for a stream for example, CheckPlace decides too.
package sites
