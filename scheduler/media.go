package scheduler

import (
	"math"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// validMedia returns an error if the spans of req.Media are not ascending, overlap, are
// empty or leave the prompt.
func validMedia(req *Request) error {
	end := 0
	for i, m := range req.Media {
		if m.At < end || m.Tokens < 1 || m.Tokens > len(req.Prompt)-m.At {
			return refuse("Media", ErrInvalid, "Media[%d] has %d tokens from %d on, after one that ends at %d; the prompt has %d", i, m.Tokens, m.At, end, len(req.Prompt))
		}
		end = m.At + m.Tokens
	}
	return nil
}

// shares returns how many leading tokens x and y have in common. x and y begin at position
// at of the sequences q and o, in either order. Placeholders are equal only if the media
// that they stand for are: two images of 256 patches have equal tokens and different
// hashes.
func (q *sequence) shares(o *sequence, at int, x, y []kv.Token) int {
	n := wide.CommonPrefix(x, y)
	if len(q.req.Media)+len(o.req.Media) > 0 {
		n = max(min(n, mediaDiffer(q.req.Media, o.req.Media)-at), 0)
	}
	return n
}

// mediaDiffer returns the first position at which a span of x has no equal in y, or the
// reverse; math.MaxInt if the lists are equal.
func mediaDiffer(x, y []kv.Media) int {
	for i := 0; i < len(x) || i < len(y); i++ {
		switch {
		case i >= len(x):
			return y[i].At
		case i >= len(y):
			return x[i].At
		case x[i] != y[i]:
			return min(x[i].At, y[i].At)
		}
	}
	return math.MaxInt
}

// wholeMedia returns n, or if position n is within a span of media, the start of that span:
// the cache keeps a span as a whole. For a span [10, 266), 100 becomes 10.
func (q *sequence) wholeMedia(n int) int {
	for _, m := range q.req.Media {
		if m.At < n && n < m.At+m.Tokens {
			return m.At
		}
	}
	return n
}
