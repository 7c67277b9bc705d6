package fleetview

import (
	"embed"
	"net/http"

	"github.com/coppice-llm/coppice/internal/web"
)

//go:embed page
var page embed.FS

// Page serves the page at / and its files below /page/. It shows nothing by itself, so that
// all may have it: what it shows comes from /v1/fleet/view, with the key that is asked for.
func Page() http.Handler { return web.Page(page) }
