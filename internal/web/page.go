package web

import (
	"embed"
	"io/fs"
	"net/http"
)

//go:embed page
var shared embed.FS

// contentPolicy lets a page load its own files and call its own server only: text of a prompt, a
// request or a worker can't execute or be sent elsewhere.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Page serves a live page from the directory "page" of the embedded file system: page.html at
// the URL path /, and the directory's files below /page/. The files that all pages share, which
// this package embeds, are below /page/ too.
func Page(files embed.FS) http.Handler {
	serve := func(from embed.FS) http.Handler {
		sub, err := fs.Sub(from, "page")
		if err != nil {
			panic(err) // impossible: the directory is embedded
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

// headers sets the security headers of a page and its files.
func headers(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache") // a new version has a new page
}
