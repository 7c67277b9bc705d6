package view

import (
	"embed"
	"errors"
	"net/http"
	"time"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/web"
	"github.com/coppice-llm/coppice/openai"
)

//go:embed page
var page embed.FS

// writeTimeout bounds the write of one frame. A client that takes longer is disconnected.
const writeTimeout = 10 * time.Second

// Handler serves the page at /, its files below /page/, the latest State at /v1/view, and a
// stream of them as events at /v1/view/stream. The page itself holds no data and needs no key;
// Config.Access decides on the rest. A stream ends with its request or with Feed.Close.
func Handler(f *Feed) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", web.Page(page))
	mux.HandleFunc("GET /v1/view", f.serveState)
	mux.HandleFunc("GET /v1/view/stream", f.serveStream)
	return mux
}

// open opens a watch for the request r. If it can't, it answers r with the reason and returns nil.
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

// serveState answers GET /v1/view with the first frame of a watch.
func (f *Feed) serveState(w http.ResponseWriter, r *http.Request) {
	watch := f.open(w, r)
	if watch == nil {
		return
	}
	defer watch.Close()
	select {
	case frame, ok := <-watch.Frames():
		if !ok {
			fail(w, http.StatusServiceUnavailable, "server_closed", "the server is closed, or this watch has made room for another; retry later")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.Write(frame)
	case <-r.Context().Done():
	}
}

// serveStream answers GET /v1/view/stream with one event per frame.
func (f *Feed) serveStream(w http.ResponseWriter, r *http.Request) {
	watch := f.open(w, r)
	if watch == nil {
		return
	}
	defer watch.Close()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // otherwise nginx buffers the stream
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
			out.SetWriteDeadline(time.Now().Add(writeTimeout)) // a writer without deadlines just waits
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
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(openai.AppendError(nil, conversation.NewError(status, code, "%s", message)))
}
