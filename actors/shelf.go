package actors

import (
	"container/list"

	"github.com/coppice-llm/coppice/grammar"
)

// format is a compiled one, or why it can't be.
type format struct {
	key     Format
	grammar *grammar.Grammar
	err     error
	size    int
}

// shelf keeps formats, of some size together, those that were used last.
type shelf struct {
	room  int
	size  int
	byKey map[Format]*list.Element // of *format
	byUse *list.List               // latest first
}

func newShelf(room int) shelf {
	return shelf{room: room, byKey: make(map[Format]*list.Element), byUse: list.New()}
}

// take finds a format that is kept, or nil.
func (s *shelf) take(key Format) *format {
	e := s.byKey[key]
	if e == nil {
		return nil
	}
	s.byUse.MoveToFront(e)
	return e.Value.(*format)
}

// put keeps a format that is not there yet, unless it is larger than all the room.
func (s *shelf) put(f *format, size int) {
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
