// Package web owns the parts shared by the HTTP servers of a node and of a fleet: the limit on connections, the names and
// sites that a server answers to, the count of open requests and their shutdown, their bodies, write deadlines, a page
// with its files, and net/http's log. It knows no route and no key.
//
//	l = web.LimitConns(l, web.ConnLimits{Conns: 8192, Spare: web.SpareConns}, &open)
//	srv := http.Server{Handler: h, ConnContext: web.ConnContext}
//	open := web.NewOpenRequests(0)
//	...
//	func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
//		preflight, refusal := sites.Check(w.Header(), r)
//		switch {
//		case !web.Admitted(r.Context()):
//			http.Error(w, "too many connections", http.StatusServiceUnavailable)
//		case refusal != nil:
//			http.Error(w, refusal.Message, refusal.Status)
//		case preflight:
//			w.WriteHeader(http.StatusNoContent)
//		case open.Enter() == nil:
//			defer open.Leave()
//			...
//		}
//	}
//	...
//	err := open.Shutdown(ctx, &srv, errors.New("shutting down"), nil)
package web
