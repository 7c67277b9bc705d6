package fleetview

import (
	"embed"
	"io/fs"
	"net/http"
)

//go:embed page
var page embed.FS

// contentPolicy lets the page load its own files and talk to its own router: nothing that a
// request or a worker names can run, or leave.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Page serves the page at / and its files below /page/. It shows nothing by itself, so that
// all may have it: what it shows comes from /v1/fleet/view, with the key that is asked for.
func Page() http.Handler {
	files, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // the name is embedded
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		pageHeaders(w)
		http.ServeFileFS(w, r, files, "page.html")
	})
	serve := http.StripPrefix("/page/", http.FileServerFS(files))
	mux.HandleFunc("GET /page/{file}", func(w http.ResponseWriter, r *http.Request) {
		pageHeaders(w)
		serve.ServeHTTP(w, r)
	})
	return mux
}

func pageHeaders(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache") // another version of the router has another page
}
