package web

import (
	"embed"
	"io/fs"
	"net/http"
)

//go:embed page
var shared embed.FS

// contentPolicy lets a page load its own files and talk to its own server: nothing that a
// prompt, a request or a worker names can run, or leave.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Page serves page.html of files, which are in its directory "page", at /, and all of them, and
// those that all pages share, below /page/.
func Page(files embed.FS) http.Handler {
	serve := func(from embed.FS) http.Handler {
		sub, err := fs.Sub(from, "page")
		if err != nil {
			panic(err) // the name is embedded
		}
		return http.StripPrefix("/page/", http.FileServerFS(sub))
	}
	own, common := serve(files), serve(shared)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		headers(w)
		http.ServeFileFS(w, r, files, "page/page.html")
	})
	mux.HandleFunc("GET /page/{file}", func(w http.ResponseWriter, r *http.Request) {
		headers(w)
		if _, err := fs.Stat(shared, "page/"+r.PathValue("file")); err == nil {
			common.ServeHTTP(w, r)
			return
		}
		own.ServeHTTP(w, r)
	})
	return mux
}

func headers(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache") // another version has another page
}
