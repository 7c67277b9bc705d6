package e2e

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
)

// cut is an expression that lists parts of the page that are cut off at the sides: elements that reach
// beyond the window, and text that is partly hidden by its own box. Lists may scroll, and the picture
// of the tree and bars are not text.
const cut = `(() => {
	const wide = innerWidth, bad = [];
	if (document.scrollingElement.scrollWidth > wide) bad.push("the page is " + document.scrollingElement.scrollWidth + " wide");
	for (const e of document.body.querySelectorAll("*")) {
		if (!e.getClientRects().length || e.closest("svg, canvas, .bar, .mini, .hidden")) continue;
		const r = e.getBoundingClientRect(), style = getComputedStyle(e), name = e.tagName + "#" + e.id + "." + e.className + ": " + e.textContent.slice(0, 60);
		if (r.right > wide + 0.5 || r.left < -0.5) bad.push("beyond the window: " + name);
		if (style.overflowX !== "visible" && e.scrollWidth > e.clientWidth + 1) bad.push("hides a part: " + name);
	}
	for (const t of document.querySelectorAll("svg text")) {
		const r = t.getBoundingClientRect(), own = t.ownerSVGElement.getBoundingClientRect();
		if (r.width && (r.right > own.right + 0.5 || r.left < own.left - 0.5)) bad.push("beyond its chart: " + t.textContent);
	}
	return bad;
})()`

func (b *browser) whole(when string) {
	b.t.Helper()
	for _, what := range value[[]string](b, cut) {
		b.t.Errorf("%s: %s", when, what)
	}
}

// turnsShown is an expression for the cached tokens of each turn of the chat; it is null while a turn
// has no usage yet.
const turnsShown = `(() => {
	const n = [...document.querySelectorAll("#turns li .sub")].map((s) => Number((s.textContent.match(/^([\d,]+) of/) || ["", "x"])[1].replaceAll(",", "")));
	return !document.querySelector("#send").disabled && n.every((v) => v >= 0) ? n : null;
})()`

// TestPagePhone checks the page at the width of a phone: the prompt box comes first, nothing is cut
// off, suggested prompts can be sent, and the cached prefix of a chat grows.
func TestPagePhone(t *testing.T) {
	b := browse(t)
	p := serve(t, "--kv-tokens", "32768")
	run(b, "the size of a phone", chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile))
	run(b, "load the page", chromedp.Navigate(p.url+"/"))
	b.see("the page is live", `document.querySelector("#state").textContent === "live"`)
	b.see("it says that the weights are random", `/weights are random/.test(document.querySelector("#note").textContent)`)
	b.whole("idle")
	if !value[bool](b, `[...document.querySelectorAll("main > section")].every((s) => s.matches(".try") || !s.getClientRects().length || s.getBoundingClientRect().top > document.querySelector(".try").getBoundingClientRect().bottom)`) {
		t.Error("the box for prompts is not the first")
	}

	ended := `!document.querySelector("#send").disabled && document.querySelector("#prompt-sub").textContent`
	run(b, "few tokens", chromedp.SetValue("#max", "12"))
	run(b, "the most likely ones", chromedp.SetValue("#temp", "0")) // a turn that ends with its first token shows no usage
	run(b, "send this", chromedp.Click("#offer-first"))
	b.see("it is answered", ended)
	run(b, "change its end", chromedp.Click("#offer-next"))
	b.see("it is answered, most of it from the cache", ended+` && `+cachedTokens+` > document.querySelectorAll("#tokens span").length / 2`)
	if n := value[int](b, `document.querySelectorAll("#tokens .computed").length`); n < 2 {
		t.Errorf("with another end only %d tokens were computed", n)
	}
	b.whole("a prompt")

	run(b, "the chat", chromedp.Click("#as-chat"))
	var cached []int
	for turn := range 4 {
		run(b, "next turn", chromedp.Click("#offer-first"))
		b.see("its usage", fmt.Sprintf(`(%s || []).length === %d`, turnsShown, turn+1))
		cached = value[[]int](b, turnsShown)
	}
	for i := 1; i < len(cached); i++ {
		if cached[i] <= cached[i-1] {
			t.Errorf("cached tokens of the turns: %v, want ever more", cached)
		}
	}
	t.Logf("cached tokens of the turns: %v", cached)
	p.load(6)
	b.see("somebody runs", `document.querySelectorAll("#running li:not(.none)").length > 0`)
	b.see("prefixes are reused", `document.querySelectorAll("#best li:not(.none)").length > 3`)
	b.see("the curve is there", `!document.querySelector("#curve-card").hidden && document.querySelector("#curve path")`)
	b.whole("under load")
	p.quietPage(b)
}
