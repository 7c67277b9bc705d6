package actors

import (
	"container/list"

	"github.com/coppice-llm/coppice/grammar"
)

// format is a compiled grammar, or the error of compiling it.
type format struct {
	key     grammar.Format
	grammar *grammar.Grammar
	err     error
	size    int
}

// formatCache is an LRU cache of formats, bounded by the sum of their sizes.
type formatCache struct {
	room  int
	size  int
	byKey map[grammar.Format]*list.Element // of *format
	byUse *list.List                       // latest first
}

func newFormatCache(room int) formatCache {
	return formatCache{room: room, byKey: make(map[grammar.Format]*list.Element), byUse: list.New()}
}

// take returns a cached format and marks it as used, or returns nil.
func (s *formatCache) take(key grammar.Format) *format {
	e := s.byKey[key]
	if e == nil {
		return nil
	}
	s.byUse.MoveToFront(e)
	return e.Value.(*format)
}

// put adds f, which is not cached yet, with the given size. It drops the formats that were
// not used for longest until all fit. A format that is larger than the whole cache is not
// added.
func (s *formatCache) put(f *format, size int) {
	if size > s.room {
		return
	}
	f.size = size
	s.byKey[f.key] = s.byUse.PushFront(f)
	for s.size += size; s.size > s.room; {
		last := s.byUse.Remove(s.byUse.Back()).(*format)
		s.size -= last.size
		delete(s.byKey, last.key)
	}
}
