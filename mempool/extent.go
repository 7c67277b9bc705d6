package mempool

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
)

// MinExtentBytes is the minimum size of a full extent. Storage moves pieces of 1 MiB at
// nearly its full bandwidth, but pages of a small model (tens of KiB) far more slowly.
const MinExtentBytes = 1 << 20

// Limits of a [Layout].
const (
	MaxExtentTokens = 1 << 16
	MaxExtentBytes  = 1 << 30
)

// Limits of the parts of an [Extent] that vary.
const (
	MaxNamespaceBytes = 1024 // model, LoRA and salt together
	MaxExtentMedia    = 64
)

// Layout is the shape of a store's extents, constant over its life.
type Layout struct {
	PageTokens  int `min:"1" max:"1<<16"` // token slots of a page
	PageBytes   int `min:"1" max:"1<<30"` // bytes of a page, over all layers
	ExtentPages int `min:"1" max:"1<<16"` // pages of a full extent
}

// LayoutOf returns the layout for pages of pageTokens tokens and pageBytes bytes. An extent
// has the smallest power-of-two number of pages that holds at least MinExtentBytes, but at
// most MaxExtentTokens tokens. A page of 1 MiB or more is an extent by itself; pages of 96
// KiB make extents of 16 pages, 1.5 MiB.
func LayoutOf(pageTokens, pageBytes int) Layout {
	l := Layout{PageTokens: pageTokens, PageBytes: pageBytes, ExtentPages: 1}
	for pageBytes > 0 && pageTokens > 0 && l.ExtentBytes() < MinExtentBytes && 2*l.ExtentTokens() <= MaxExtentTokens {
		l.ExtentPages *= 2
	}
	return l
}

// ExtentTokens returns the number of tokens of a full extent.
func (l Layout) ExtentTokens() int { return l.ExtentPages * l.PageTokens }

// ExtentBytes returns the size of a full extent's pages.
func (l Layout) ExtentBytes() int { return l.ExtentPages * l.PageBytes }

// Pages returns the number of pages of x.
func (l Layout) Pages(x *Extent) int { return len(x.Tokens) / l.PageTokens }

// Bytes returns the size of the pages of x.
func (l Layout) Bytes(x *Extent) int { return l.Pages(x) * l.PageBytes }

// Validate returns an error that names the invalid fields of l, or nil.
func (l Layout) Validate() error {
	if err := bounds.Check("mempool: Layout", l); err != nil {
		return err
	}
	if l.ExtentTokens() > MaxExtentTokens || l.ExtentPages > MaxExtentBytes/l.PageBytes {
		return fmt.Errorf("mempool: an extent of %d pages has more than %d tokens or %d bytes", l.ExtentPages, MaxExtentTokens, MaxExtentBytes)
	}
	return nil
}

// Extent describes the contents of some consecutive pages of KV: tokens [Start,
// Start+len(Tokens)) of a sequence, after those of Parent. It is the unit in which KV
// moves between tiers.
//
// Start is a multiple of the layout's ExtentTokens. Tokens fill whole pages:
// ExtentPages, or fewer in the last extent of a sequence, the tail, which has
// no children. Tokens past the last whole page are in no extent.
type Extent struct {
	Key       Key
	Parent    Key // zero if Start is 0
	Namespace kv.Namespace
	Start     int
	Tokens    []kv.Token
	Media     []kv.Media // media with tokens in the extent, by ascending At; At counts from the sequence's start
}

// AppendExtents returns dst with the extents of a sequence appended, parents first: the full
// extents, and a tail if whole pages remain after them. tokens begins at token 0 of the
// sequence; media must ascend by At. The slices of the extents are views of tokens and media.
func (l Layout) AppendExtents(dst []Extent, ns kv.Namespace, tokens []kv.Token, media []kv.Media) []Extent {
	var parent Key
	whole := kv.FloorPages(len(tokens), l.PageTokens) * l.PageTokens
	for lo := 0; lo < whole; lo += l.ExtentTokens() {
		hi := min(lo+l.ExtentTokens(), whole)
		x := Extent{Parent: parent, Namespace: ns, Start: lo, Tokens: tokens[lo:hi:hi], Media: within(media, lo, hi)}
		x.Key = keyOf(&x)
		parent = x.Key
		dst = append(dst, x)
	}
	return dst
}

// within returns the media with tokens in [lo, hi), as a view.
func within(media []kv.Media, lo, hi int) []kv.Media {
	for len(media) > 0 && media[0].At+media[0].Tokens <= lo {
		media = media[1:]
	}
	n := 0
	for n < len(media) && media[n].At < hi {
		n++
	}
	if n == 0 {
		return nil
	}
	return media[:n:n]
}

// Clone returns a copy of x with its own slices.
func (x *Extent) Clone() Extent {
	c := *x
	c.Tokens, c.Media = slices.Clone(x.Tokens), slices.Clone(x.Media)
	return c
}

// Check returns an error that wraps ErrInvalid if x can't be an extent of the layout, or if
// x.Key is not the key of its contents. Otherwise it returns nil.
func (l Layout) Check(x *Extent) error {
	switch {
	case len(x.Tokens) == 0 || len(x.Tokens)%l.PageTokens != 0 || len(x.Tokens) > l.ExtentTokens():
		return fmt.Errorf("%w: an extent of %d tokens, in pages of %d and extents of %d", ErrInvalid, len(x.Tokens), l.PageTokens, l.ExtentTokens())
	case x.Start < 0 || x.Start%l.ExtentTokens() != 0:
		return fmt.Errorf("%w: an extent begins at token %d, want a multiple of %d", ErrInvalid, x.Start, l.ExtentTokens())
	case (x.Start == 0) != x.Parent.IsZero():
		return fmt.Errorf("%w: an extent begins at token %d with parent %s", ErrInvalid, x.Start, x.Parent.Short())
	case len(x.Namespace.Model)+len(x.Namespace.LoRA)+len(x.Namespace.Salt) > MaxNamespaceBytes:
		return fmt.Errorf("%w: a namespace of more than %d bytes", ErrInvalid, MaxNamespaceBytes)
	case len(x.Media) > MaxExtentMedia:
		return fmt.Errorf("%w: %d media reach into an extent, at most %d may", ErrInvalid, len(x.Media), MaxExtentMedia)
	case x.Key != keyOf(x):
		return fmt.Errorf("%w: %s is not the key of its extent", ErrInvalid, x.Key.Short())
	}
	return nil
}

// SharedPages returns the number of first pages that x and want share: pages with equal
// tokens and media from the extents' start to the page's end. It returns 0 if parent,
// namespace or start differ.
func (l Layout) SharedPages(x, want *Extent) int {
	if x.Parent != want.Parent || x.Namespace != want.Namespace || x.Start != want.Start {
		return 0
	}
	n := 0
	for n < min(len(x.Tokens), len(want.Tokens)) && x.Tokens[n] == want.Tokens[n] {
		n++
	}
	// Equal tokens are not enough, because media with different contents may have equal
	// placeholder tokens. So drop pages from the end until the media are equal too.
	pages := n / l.PageTokens
	for ; pages > 0; pages-- {
		end := x.Start + pages*l.PageTokens
		if slices.Equal(within(x.Media, x.Start, end), within(want.Media, x.Start, end)) {
			break
		}
	}
	return pages
}
