// Package conns owns how many connections a server has at a time, and a few more that may
// ask how it is while all of those are taken. It never reads what a connection says.
//
// A listener of Limit may be used as any other. The server's handler asks Admitted whether
// a request came over one of the usual connections:
//
//	l = conns.Limit(l, conns.Config{Conns: 8192, Spare: conns.Spare}, &open)
//	srv := http.Server{Handler: h, ConnContext: conns.Context}
//	...
//	func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
//		if !conns.Admitted(r.Context()) && r.URL.Path != "/health" {
//			w.Header().Set("Connection", "close")
//			http.Error(w, "too many connections", http.StatusServiceUnavailable)
//			return
//		}
package conns
