package mempool

import (
	"errors"
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// MinExtentBytes is the least size of a full extent: storage moves pieces of 1 MiB at
// nearly its full bandwidth, and pieces of a small model's pages far below it.
const MinExtentBytes = 1 << 20

// Limits of a [Layout].
const (
	MaxExtentTokens = 1 << 16
	MaxExtentBytes  = 1 << 30
)

// Layout is the shape of a store's extents, constant over its life.
type Layout struct {
	PageTokens  int // token slots of a page
	PageBytes   int // bytes of a page, over all layers
	ExtentPages int // pages of a full extent
}

// LayoutOf is the layout for pages of a size: the least power of two of pages that has
// MinExtentBytes. Pages of 1 MiB or more are extents of their own.
func LayoutOf(pageTokens, pageBytes int) Layout {
	l := Layout{PageTokens: pageTokens, PageBytes: pageBytes, ExtentPages: 1}
	for pageBytes > 0 && pageTokens > 0 && l.ExtentBytes() < MinExtentBytes && 2*l.ExtentTokens() <= MaxExtentTokens {
		l.ExtentPages *= 2
	}
	return l
}

// ExtentTokens is the number of tokens of a full extent.
func (l Layout) ExtentTokens() int { return l.ExtentPages * l.PageTokens }

// ExtentBytes is the size of a full extent's pages.
func (l Layout) ExtentBytes() int { return l.ExtentPages * l.PageBytes }

// Pages is the number of pages of x.
func (l Layout) Pages(x *Extent) int { return len(x.Tokens) / l.PageTokens }

// Bytes is the size of the pages of x.
func (l Layout) Bytes(x *Extent) int { return l.Pages(x) * l.PageBytes }

// Validate reports all that is wrong with l.
func (l Layout) Validate() error {
	var errs []error
	for _, f := range [...]struct {
		name    string
		n, most int
	}{{"PageTokens", l.PageTokens, MaxExtentTokens}, {"PageBytes", l.PageBytes, MaxExtentBytes}, {"ExtentPages", l.ExtentPages, MaxExtentTokens}} {
		if f.n < 1 || f.n > f.most {
			errs = append(errs, fmt.Errorf("mempool: Layout.%s is %d, want 1 to %d", f.name, f.n, f.most))
		}
	}
	if len(errs) == 0 && (l.ExtentTokens() > MaxExtentTokens || l.ExtentPages > MaxExtentBytes/l.PageBytes) {
		errs = append(errs, fmt.Errorf("mempool: an extent of %d pages is over %d tokens or %d bytes", l.ExtentPages, MaxExtentTokens, MaxExtentBytes))
	}
	return errors.Join(errs...)
}

// Extent says what some consecutive pages of KV hold: tokens [Start, Start+len(Tokens))
// of a sequence, after those of Parent. It is the unit in which KV moves between tiers.
//
// Start is a multiple of the layout's ExtentTokens. Tokens fill whole pages: ExtentPages
// of them, or fewer in the last extent of a sequence, the tail, which has no children.
// Tokens past the last whole page are in no extent.
type Extent struct {
	Key       Key
	Parent    Key // zero if Start is 0
	Namespace kv.Namespace
	Start     int
	Tokens    []kv.Token
	Media     []kv.Media // those that reach into the extent, by ascending At, counted from the sequence's start
}

// AppendExtents appends the extents of a sequence to dst, parents first: the full ones,
// and a tail if whole pages are left. Their slices are views of tokens and of media,
// which are ascending by At.
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

// within is the media that reach into tokens [lo, hi).
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

// Clone is x with slices of its own.
func (x *Extent) Clone() Extent {
	c := *x
	c.Tokens, c.Media = slices.Clone(x.Tokens), slices.Clone(x.Media)
	return c
}

// Check reports whether x can be an extent of the layout and has the key of what it says.
func (l Layout) Check(x *Extent) error {
	switch {
	case len(x.Tokens) == 0 || len(x.Tokens)%l.PageTokens != 0 || len(x.Tokens) > l.ExtentTokens():
		return fmt.Errorf("%w: an extent of %d tokens, in pages of %d and extents of %d", ErrInvalid, len(x.Tokens), l.PageTokens, l.ExtentTokens())
	case x.Start < 0 || x.Start%l.ExtentTokens() != 0:
		return fmt.Errorf("%w: an extent begins at token %d, want a multiple of %d", ErrInvalid, x.Start, l.ExtentTokens())
	case (x.Start == 0) != x.Parent.IsZero():
		return fmt.Errorf("%w: an extent begins at token %d and its parent is %s", ErrInvalid, x.Start, x.Parent.Short())
	case len(x.Namespace.Model)+len(x.Namespace.LoRA)+len(x.Namespace.Salt) > MaxNamespaceBytes:
		return fmt.Errorf("%w: a namespace of over %d bytes", ErrInvalid, MaxNamespaceBytes)
	case len(x.Media) > MaxExtentMedia:
		return fmt.Errorf("%w: %d media reach into an extent, at most %d may", ErrInvalid, len(x.Media), MaxExtentMedia)
	case x.Key != keyOf(x):
		return fmt.Errorf("%w: %s is not the key of its extent", ErrInvalid, x.Key.Short())
	}
	return nil
}

// SharedPages is the number of leading pages of x that hold the KV of want too: the same
// parent, namespace and start, and tokens and media that agree.
func (l Layout) SharedPages(x, want *Extent) int {
	if x.Parent != want.Parent || x.Namespace != want.Namespace || x.Start != want.Start {
		return 0
	}
	n := 0
	for n < min(len(x.Tokens), len(want.Tokens)) && x.Tokens[n] == want.Tokens[n] {
		n++
	}
	pages := n / l.PageTokens
	for ; pages > 0; pages-- {
		end := x.Start + pages*l.PageTokens
		if slices.Equal(within(x.Media, x.Start, end), within(want.Media, x.Start, end)) {
			break
		}
	}
	return pages
}
