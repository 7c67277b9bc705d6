package dirmem

import (
	"time"

	"github.com/coppice-llm/coppice/mempool/internal/record"
)

// learn records the size of a record's file, which is no longer hidden; size 0 means that there is
// no such record.
func (s *Store) learn(n record.Name, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.hidden, n)
	s.know(n, size)
	s.changed[n] = true
}

// know sets the size of a record in the table; 0 removes it. The lock is held.
func (s *Store) know(n record.Name, size int64) {
	s.bytes += size - s.known[n]
	if s.known[n] = size; size == 0 {
		delete(s.known, n)
	}
}

// hide makes a record count as missing in this process for Config.forget, because it could not be
// read. The file stays: the fault may be this process's own, and other processes may read it.
func (s *Store) hide(n record.Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := s.known[n]
	s.know(n, 0)
	s.hidden[n] = hidden{time.Now().Add(s.cfg.forget), size}
	s.changed[n] = true
}

// hides reports whether a record counts as missing because it could not be read.
func (s *Store) hides(n record.Name) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.hidden[n]
	if ok && !time.Now().Before(h.until) {
		delete(s.hidden, n)
		return false
	}
	return ok
}

// relearn replaces the table of sizes by a listing of the directory, except for records that have
// changed since the listing began. Hidden records stay hidden until their time is over.
func (s *Store) relearn(files map[record.Name]*file) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for name, h := range s.hidden {
		if f := files[name]; f == nil && !s.changed[name] || !now.Before(h.until) {
			delete(s.hidden, name)
		} else if f != nil {
			s.hidden[name] = hidden{h.until, f.size}
		}
	}
	for name := range s.known {
		if files[name] == nil && !s.changed[name] {
			s.know(name, 0)
		}
	}
	for name, f := range files {
		if _, hides := s.hidden[name]; !hides && !s.changed[name] {
			s.know(name, f.size)
		}
	}
}

// reserve adds size to the bytes of records that are being written, and reports whether the quota has
// room for them. release subtracts it again.
func (s *Store) reserve(size int64) (fits bool, release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := s.bytes + s.writing + size
	for _, h := range s.hidden {
		used += h.size
	}
	s.writing += size
	return used <= s.quota.Load(), func() {
		s.mu.Lock()
		s.writing -= size
		s.mu.Unlock()
	}
}
