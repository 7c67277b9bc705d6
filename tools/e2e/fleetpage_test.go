package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/openai/openai-go/v3"
)

// TestFleetPage opens the page of a fleet under load, at the width of a screen and of a phone. The
// browser must report no error. With -pictures DIR the test writes a picture of each.
func TestFleetPage(t *testing.T) {
	b := browse(t)
	var workers []*process
	for _, name := range []string{"one", "two", "three"} {
		workers = append(workers, serve(t, append(slow, "--publish", "zmq://127.0.0.1:0", "--name", name)...))
	}
	p := route(t, workers)
	run(b, "load the page", chromedp.Navigate(p.url+"/"))
	b.see("the page is live", `document.querySelector("#state").textContent === "live"`)
	b.see("no request has come", `!document.querySelector("#no-recent").hidden`)
	b.see("all workers are healthy", `document.querySelector("#ready-sub").textContent === "all healthy"`)
	for range 3 { // not streamed: a whole answer always has the cached tokens
		ask := talk(8, openai.SystemMessage(systems[0]), openai.UserMessage(questions[0]))
		if _, err := p.client.Chat.Completions.New(t.Context(), ask); err != nil {
			t.Fatal(detail(err))
		}
	}
	b.see("requests are shown, with what was cached of them", `document.querySelectorAll("#recent .bar .a").length === 3`)
	p.load(8)
	b.see("each worker has had some", `[...document.querySelectorAll(".worker dd:nth-of-type(4)")].filter((e) => e.textContent !== "0").length === 3`)
	b.see("the figures are there", `["ready", "rate", "hit", "predicted", "ttft"].every((id) => /\d/.test(document.getElementById(id).textContent))`)
	b.see("the list of requests is full", `document.querySelectorAll("#recent li").length === 24`)
	for _, size := range []struct{ width, height int }{{1280, 980}, {390, 1300}} {
		run(b, "a size", chromedp.EmulateViewport(int64(size.width), int64(size.height)))
		b.see(fmt.Sprintf("nothing is cut at %d pixels", size.width), `[document.documentElement, ...document.querySelectorAll("h2, .big, .sub, .tokens, .times, .worker dd")].every((e) => e.scrollWidth <= e.clientWidth || !e.clientWidth)`)
		for _, theme := range []string{"light", "dark"} {
			if now := value[string](b, `document.documentElement.dataset.theme`); now != theme {
				run(b, "the other theme", chromedp.Click("#theme"))
			}
			b.see("the theme", `document.documentElement.dataset.theme === "`+theme+`"`)
			if *picturesFlag == "" {
				continue
			}
			b.see("a frame with the theme", `new Promise((done) => setTimeout(() => done(true), 1500))`)
			name := filepath.Join(*picturesFlag, fmt.Sprintf("fleet-%s-%d.png", theme, size.width))
			if err := os.WriteFile(name, small(t, run(b, name, chromedp.CaptureScreenshot())), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if text := b.text("#workers"); !strings.Contains(text, "cache known by events") {
		t.Errorf("it says %q", text)
	}
	p.quietPage(b)
}
