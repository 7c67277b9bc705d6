package dirmem

import (
	"time"

	"github.com/coppice-llm/coppice/mempool"
)

// learn records the size of a record's file, which is no longer hidden; size 0 means that there is
// no such record.
func (s *Store) learn(k mempool.Key, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.hidden, k)
	s.know(k, size)
	s.changed[k] = true
}

// know sets the size of a record in the table; 0 removes it. The lock is held.
func (s *Store) know(k mempool.Key, size int64) {
	s.bytes += size - s.known[k]
	if s.known[k] = size; size == 0 {
		delete(s.known, k)
	}
}

// hide makes a record count as missing in this process for Config.forget, because it could not be
// read. The file stays: the fault may be this process's own, and other processes may read it.
func (s *Store) hide(k mempool.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := s.known[k]
	s.know(k, 0)
	s.hidden[k] = hidden{time.Now().Add(s.cfg.forget), size}
	s.changed[k] = true
}

// hides reports whether a record counts as missing because it could not be read.
func (s *Store) hides(k mempool.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.hidden[k]
	if ok && !time.Now().Before(h.until) {
		delete(s.hidden, k)
		return false
	}
	return ok
}

// relearn replaces the table of sizes by a listing of the directory, except for records that have
// changed since the listing began. Hidden records stay hidden until their time is over.
func (s *Store) relearn(files map[mempool.Key]*file) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for key, h := range s.hidden {
		if f := files[key]; f == nil && !s.changed[key] || !now.Before(h.until) {
			delete(s.hidden, key)
		} else if f != nil {
			s.hidden[key] = hidden{h.until, f.size}
		}
	}
	for key := range s.known {
		if files[key] == nil && !s.changed[key] {
			s.know(key, 0)
		}
	}
	for key, f := range files {
		if _, hides := s.hidden[key]; !hides && !s.changed[key] {
			s.know(key, f.size)
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
