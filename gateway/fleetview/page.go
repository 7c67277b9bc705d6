package fleetview

import (
	"embed"
	"net/http"

	"github.com/coppice-llm/coppice/internal/web"
)

//go:embed page
var page embed.FS

// Page serves the page at / and its files below /page/. The page holds no data and needs no key:
// the data comes from /v1/fleet/view, with the key that the page asks for.
func Page() http.Handler { return web.Page(page) }
