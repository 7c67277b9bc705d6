package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser is a page in headless Chromium, with the errors that it reported.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	faults []string // exceptions, and errors in the console
	asked  []string // requested URLs
}

// browse opens Chromium with a new profile, or skips the test if there is no Chromium.
func browse(t *testing.T) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome", "headless-shell"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("no Chromium here: the page is not tested (Debian: apt-get install chromium)")
	}
	profile, err := os.MkdirTemp("", "coppice-e2e-profile-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(profile) })
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(path), chromedp.UserDataDir(profile), chromedp.WindowSize(1440, 1000)}
	for _, flag := range []string{"headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "no-default-browser-check", "disable-background-networking",
		"disable-component-update", "disable-sync", "disable-extensions", "disable-dev-shm-usage", "hide-scrollbars", "mute-audio"} {
		options = append(options, chromedp.Flag(flag, true))
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &browser{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.hear); err != nil { // starts the browser
		t.Fatalf("%s does not start: %v", path, err)
	}
	t.Cleanup(func() { // runs before the cleanups above, and waits for the browser's end
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if err := chromedp.Cancel(ctx); err != nil {
			t.Errorf("%s does not end: %v", path, err)
		}
	})
	run(b, "listen to requests", call(network.Enable, network.EnableParams{}))
	run(b, "listen to complaints", call(cdplog.Enable, cdp.Empty{}))
	return b
}

// call returns a command of the DevTools protocol as an action.
func call[P, R any](command cdp.Command[P, R], params P) chromedp.Action[R] {
	return func(ctx context.Context, t *chromedp.Target) (R, error) { return cdp.Call(ctx, t, command, params) }
}

func (b *browser) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.asked = append(b.asked, e.Request.URL)
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += " " + e.ExceptionDetails.Exception.Description
		}
		b.faults = append(b.faults, text)
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.EntryLevelError || e.Entry.Level == cdplog.EntryLevelWarning {
			b.faults = append(b.faults, e.Entry.Text+" "+e.Entry.URL)
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeAssert {
			b.faults = append(b.faults, fmt.Sprint(e.Args))
		}
	}
}

// run runs one action, within a time limit.
func run[T any](b *browser, what string, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		body, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.body.innerText"))
		b.t.Fatalf("%s: %v; the page says\n%s", what, err, body)
	}
	return v
}

// see waits until an expression of the page is true.
func (b *browser) see(what, expression string) {
	b.t.Helper()
	run(b, what, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(patience), chromedp.WithPollingInterval(20*time.Millisecond)))
}

func (b *browser) text(selector string) string {
	b.t.Helper()
	return run(b, selector, chromedp.TextContent(selector))
}

// value returns the value of an expression in the page.
func value[T any](b *browser, expression string) T {
	b.t.Helper()
	return run(b, expression, chromedp.Evaluate[T](expression))
}

// nodesShown matches the number of nodes that the page shows for its picture.
var nodesShown = regexp.MustCompile(`in ([\d,]+) nodes?`)

func (b *browser) nodes() int {
	b.t.Helper()
	m := nodesShown.FindStringSubmatch(b.text("#tree-sub"))
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(strings.ReplaceAll(m[1], ",", ""))
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// painted is an expression for the number of colours in the picture of the tree.
const painted = `(() => {
	const c = document.querySelector("#tree"), o = new OffscreenCanvas(c.width, c.height).getContext("2d", { willReadFrequently: true });
	o.drawImage(c, 0, 0);
	const p = o.getImageData(0, 0, c.width, c.height).data, seen = new Set();
	for (let i = 0; i < p.length; i += 4 * 7) if (p[i + 3] === 255) seen.add(p[i] << 16 | p[i + 1] << 8 | p[i + 2]);
	return seen.size;
})()`

// TestPage uses the page under load and sends a prompt twice.
func TestPage(t *testing.T) {
	b := browse(t)
	p := serve(t, append(slow, "--kv-tokens", "32768", "--max-running", "8")...)
	run(b, "load the page", chromedp.Navigate(p.url+"/"))
	b.see("the page is live", `document.querySelector("#state").textContent === "live"`)
	b.see("nothing is cached yet", `!document.querySelector("#empty").hidden`)
	b.see("it says that the text means nothing", `!document.querySelector("#note").hidden && /the text means nothing/.test(document.querySelector("#note").textContent)`)
	if title, model := b.text("h1"), b.text("#model"); title != "Coppice" || model != "nano" {
		t.Errorf("it is called %q, of %q", title, model)
	}

	p.load(10)
	grows := func(from int) int {
		t.Helper()
		var n int
		p.until(fmt.Sprintf("the picture has over %d nodes", from), func() bool { n = b.nodes(); return n > from })
		return n
	}
	few := grows(0)
	many := grows(few + 20)
	b.see("the tree is painted", painted+" > 8")
	b.see("the page no longer says that there is nothing", `document.querySelector("#empty").hidden`)
	b.see("somebody runs", `document.querySelectorAll("#running li:not(.none)").length > 0`)
	b.see("somebody waits", `document.querySelectorAll("#waiting li:not(.none)").length > 0`)
	b.see("somebody has finished", `document.querySelectorAll("#finished li:not(.none)").length > 0`)
	b.see("prefixes are reused", `document.querySelectorAll("#best li:not(.none)").length > 0`)
	b.see("the figures are there", `["hit", "ttft", "itl", "rate", "load"].every((id) => /\d/.test(document.getElementById(id).textContent))`)
	b.see("the lines are there", `["hit-line", "ttft-line", "rate-line"].every((id) => document.getElementById(id).querySelector("path"))`)
	b.see("the curve is there", `!document.querySelector("#curve-card").hidden && document.querySelector("#curve path")`)
	t.Logf("nodes in the picture: %d, then %d, then %d", few, many, grows(many))

	b.send("What was the first railway of the country, who built it, and what was it for? " + words("Say it of line", 6))
	first := value[int](b, cachedTokens)
	all := value[int](b, `document.querySelectorAll("#tokens span").length`)
	if why := b.text("#why"); !strings.Contains(why, "the next page ") || !strings.Contains(why, fmt.Sprintf("of its %d tokens", all)) {
		t.Errorf("of a prompt that is not cached it says %q", why)
	}
	run(b, "send it again", chromedp.Click("#send"))
	b.see("more of it comes from the cache", cachedTokens+" > "+strconv.Itoa(first))
	second := value[int](b, cachedTokens)
	if second < all-16 || second >= all || first >= all/2 {
		t.Errorf("of %d tokens %d were cached the first time, %d the second", all, first, second)
	}
	if n := value[int](b, `document.querySelectorAll("#tokens .computed").length`); n != all-second {
		t.Errorf("%d tokens are shown as computed, %d as cached, of %d", n, second, all)
	}
	if said := b.text("#prompt-sub"); !strings.HasPrefix(said, fmt.Sprintf("%d of %d tokens", second, all)) {
		t.Errorf("it says %q of %d of %d tokens", said, second, all)
	}
	if why := b.text("#why"); !strings.Contains(why, fmt.Sprintf("compute %d of its %d tokens", all-second, all)) {
		t.Errorf("%d of %d tokens were cached, before it said %q", second, all, why)
	}
	const background = `getComputedStyle(document.querySelector("#tokens .%s")).backgroundColor`
	b.see("they have colours of their own", fmt.Sprintf(background+" !== "+background, "cached", "computed"))
	for tries := 1; b.text("#answer") == ""; tries++ { // random weights end one answer in 300 at once
		if tries == 3 {
			t.Error("no answer is shown")
			break
		}
		b.send("")
	}
	b.send("And how long was it?")
	third := value[int](b, cachedTokens)
	if longer := value[int](b, `document.querySelectorAll("#tokens span").length`); third < second-1 || third >= longer-8 {
		t.Errorf("with more words behind it %d of %d tokens are cached, before it was %d of %d", third, longer, second, all)
	}
	t.Logf("of %d tokens %d came from the cache, then %d, and %d with more behind them", all, first, second, third)
	b.hover()
	b.themes()
	p.quietPage(b)
}

// cachedTokens is an expression for how many tokens of the prompt are shown as cached.
const cachedTokens = `document.querySelectorAll("#tokens .cached").length`

// send appends words to the prompt box, sends the prompt and waits for the end of the answer.
func (b *browser) send(prompt string) {
	b.t.Helper()
	run(b, "the box", chromedp.Steps(chromedp.SetValue("#max", "24"), chromedp.Focus("#prompt")))
	run(b, "paste a prompt", call(input.InsertText, input.InsertTextParams{Text: prompt})) // single keys are slow on a busy machine
	run(b, "send it", chromedp.Click("#send"))
	b.see("the answer has ended", `!document.querySelector("#send").disabled && document.querySelector("#prompt-sub").textContent`)
}

// hover moves the pointer to the middle of the picture until there is a node.
func (b *browser) hover() {
	b.t.Helper()
	run(b, "the tree", chromedp.ScrollIntoView("#tree"))
	b.see("a node's text on hover", `(() => {
		const c = document.querySelector("#tree"), r = c.getBoundingClientRect();
		c.dispatchEvent(new PointerEvent("pointermove", { clientX: r.x + 8, clientY: r.y + r.height / 3 }));
		const tip = document.querySelector("#tip");
		return !tip.hidden && /tokens \[/.test(tip.textContent) && tip.querySelector("b").textContent.length > 3;
	})()`)
}

// themes checks the light and the dark theme, chosen by the system and by the button.
func (b *browser) themes() {
	b.t.Helper()
	for _, name := range []string{"dark", "light"} {
		run(b, name, call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}}))
		b.see(name, `document.documentElement.dataset.theme === "`+name+`"`)
	}
	run(b, "the button", chromedp.Click("#theme"))
	b.see("dark by the button", `document.documentElement.dataset.theme === "dark"`)
}

// quietPage checks that the page sent requests only to its own server, and that the browser reported no
// error.
func (p *process) quietPage(b *browser) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, url := range b.asked {
		if !strings.HasPrefix(url, p.url+"/") {
			b.t.Errorf("the page asks %s", url)
		}
	}
	if len(b.asked) < 5 {
		b.t.Errorf("the page asked for %v alone: is it being watched?", b.asked)
	}
	for _, f := range b.faults {
		b.t.Errorf("the page complains: %s", f)
	}
}
