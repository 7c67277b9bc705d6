// Package conns bounds the number of a server's connections. It owns their places, including a few
// spare ones for health checks while all usual ones are taken. It never reads from a connection.
//
// The listener of Limit is used like any other. The server's handler calls Admitted to learn
// whether a request came over a usual connection:
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
