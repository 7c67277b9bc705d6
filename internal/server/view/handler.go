package view

import (
	"embed"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/coppice-llm/coppice/internal/web"
)

//go:embed page
var page embed.FS

// writeTimeout bounds the writing of one frame: who takes longer is let go.
const writeTimeout = 10 * time.Second

// Handler serves the page at /, its files below /page/, the latest Snapshot at /v1/view,
// and one event for each at /v1/view/stream. The page itself shows nothing and is for
// everybody; Config.Access decides on the rest. Streams end with the request, or with
// Feed.Close.
func Handler(f *Feed) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", web.Page(page))
	mux.HandleFunc("GET /v1/view", f.serveSnapshot)
	mux.HandleFunc("GET /v1/view/stream", f.serveStream)
	return mux
}

// open begins a watch for a request, or answers why not.
func (f *Feed) open(w http.ResponseWriter, r *http.Request) *Watch {
	access, tenant := f.cfg.Access(r)
	if access == Denied {
		w.Header().Set("WWW-Authenticate", "Bearer")
		fail(w, http.StatusUnauthorized, "invalid_api_key", "give an API key of this server: Authorization: Bearer KEY")
		return nil
	}
	watch, err := f.Watch(access, tenant)
	if err != nil {
		code := "server_closed"
		if errors.Is(err, ErrTooMany) {
			code = "too_many_watchers"
		}
		w.Header().Set("Retry-After", "5")
		fail(w, http.StatusServiceUnavailable, code, err.Error())
		return nil
	}
	return watch
}

func (f *Feed) serveSnapshot(w http.ResponseWriter, r *http.Request) {
	watch := f.open(w, r)
	if watch == nil {
		return
	}
	defer watch.Close()
	select {
	case frame, ok := <-watch.Frames():
		if !ok {
			fail(w, http.StatusServiceUnavailable, "server_closed", "the server is closed, or others watch in your place; ask again later")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.Write(frame)
	case <-r.Context().Done():
	}
}

func (f *Feed) serveStream(w http.ResponseWriter, r *http.Request) {
	watch := f.open(w, r)
	if watch == nil {
		return
	}
	defer watch.Close()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies that hold back what is not complete
	if r.Method == http.MethodHead {
		return
	}
	out := http.NewResponseController(w)
	for {
		select {
		case frame, ok := <-watch.Frames():
			if !ok {
				return
			}
			out.SetWriteDeadline(time.Now().Add(writeTimeout)) // not all writers can: those wait
			for _, part := range [][]byte{[]byte("data: "), frame, []byte("\n\n")} {
				if _, err := w.Write(part); err != nil {
					return
				}
			}
			if out.Flush() != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// fail answers with an error in OpenAI's shape.
func fail(w http.ResponseWriter, status int, code, message string) {
	var body struct {
		Error struct {
			Message string  `json:"message"`
			Type    string  `json:"type"`
			Param   *string `json:"param"`
			Code    string  `json:"code"`
		} `json:"error"`
	}
	body.Error.Message, body.Error.Code, body.Error.Type = message, code, "invalid_request_error"
	if status >= 500 {
		body.Error.Type = "server_error"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body)
}
