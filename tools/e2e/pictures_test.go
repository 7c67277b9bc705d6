package e2e

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// TestPagePictures writes pictures of the page: idle and under load, light and dark, 1280 and 390
// pixels wide.
func TestPagePictures(t *testing.T) {
	if *picturesFlag == "" {
		t.Skip("writes pictures where -pictures DIR is given")
	}
	b := browse(t)
	p := launch(t, http.DefaultClient, []string{"serve"}, []string{"--kv-tokens", "16384", "--max-running", "6"}) // defaults, but a pool that is soon full
	p.model = "coppice-speak"
	run(b, "load the page", chromedp.Navigate(p.url+"/"))
	b.see("the page is live", `document.querySelector("#state").textContent === "live"`)
	b.pictures("idle")

	p.load(10)
	run(b, "few tokens", chromedp.SetValue("#max", "48"))
	run(b, "send this", chromedp.Click("#offer-first"))
	ended := `!document.querySelector("#send").disabled && document.querySelector("#prompt-sub").textContent`
	b.see("it is answered", ended)
	run(b, "change its end", chromedp.Click("#offer-next"))
	b.see("it is answered", ended)
	b.see("the charts have some time in them", "performance.now() > 25000")
	b.pictures("load")
	p.quietPage(b)

	run(b, "the size of a picture", chromedp.EmulateViewport(1280, 900))
	run(b, "light", call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "light"}}}))
	tiers := launch(t, http.DefaultClient, []string{"serve"}, []string{"--kv-tokens", "4096", "--max-running", "6", "--kv-host", "8MiB", "--kv-disk", t.TempDir() + ":64MiB"})
	tiers.model = "coppice-speak"
	run(b, "load the page", chromedp.Navigate(tiers.url+"/"))
	tiers.load(10)
	b.see("tiers are at work", `/disk .*[1-9][\d,.k]* tokens found/.test(document.querySelector("#tiers").textContent)`)
	b.see("the charts have some time in them", "performance.now() > 25000")
	run(b, "all figures", chromedp.Click("#all summary"))
	b.picture("tiers", "light", 1280)
}

// pictures takes the four pictures of one moment.
func (b *browser) pictures(when string) {
	b.t.Helper()
	for _, wide := range []int64{1280, 390} {
		run(b, "the size of a picture", chromedp.EmulateViewport(wide, 900))
		for _, theme := range []string{"light", "dark"} {
			run(b, theme, call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}}))
			b.picture(when, theme, wide)
		}
	}
}

// picture takes one picture at a width and in a theme.
func (b *browser) picture(when, theme string, wide int64) {
	b.t.Helper()
	b.see(theme, `document.documentElement.dataset.theme === "`+theme+`"`)
	b.see("it is drawn again", `new Promise((done) => setTimeout(() => done(true), 700))`)
	name := filepath.Join(*picturesFlag, fmt.Sprintf("%s-%s-%d.png", when, theme, wide))
	if err := os.WriteFile(name, small(b.t, run(b, name, chromedp.FullScreenshot(100))), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// small reduces a picture to a palette of its most frequent colours, which cover nearly all of a page
// with flat areas and text.
func small(t *testing.T, file []byte) []byte {
	t.Helper()
	full, err := png.Decode(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	type pixel = color.RGBA
	at := func(x, y int) pixel { return color.RGBAModel.Convert(full.At(x, y)).(pixel) }
	box, counts := full.Bounds(), map[pixel]int{}
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			counts[at(x, y)]++
		}
	}
	colours := make([]pixel, 0, len(counts))
	for c := range counts {
		colours = append(colours, c)
	}
	slices.SortFunc(colours, func(a, b pixel) int {
		return cmp.Or(counts[b]-counts[a], int(a.R)-int(b.R), int(a.G)-int(b.G), int(a.B)-int(b.B))
	})
	var palette color.Palette
	for _, c := range colours { // skip colours too close to one in the palette
		if len(palette) == 256 {
			break
		}
		if len(palette) < 24 || distance(c, palette[palette.Index(c)].(pixel)) > 60 {
			palette = append(palette, c)
		}
	}
	picture, nearest := image.NewPaletted(box, palette), map[pixel]uint8{}
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			c := at(x, y)
			i, known := nearest[c]
			if !known {
				i = uint8(palette.Index(c))
				nearest[c] = i
			}
			picture.SetColorIndex(x, y, i)
		}
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, picture); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func distance(a, b color.RGBA) int {
	r, g, bl := int(a.R)-int(b.R), int(a.G)-int(b.G), int(a.B)-int(b.B)
	return r*r + g*g + bl*bl
}
