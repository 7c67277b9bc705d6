package stored

import (
	"container/list"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/openai/responses"
)

// Config configures a Store.
type Config struct {
	// Dir keeps the responses in files, so that they outlive the process. One process may use it at a time. "": in memory.
	Dir string
	// MaxBytes bounds the bytes of all responses, MaxCount their number. Defaults 64 MiB and 16384.
	MaxBytes int `default:"64<<20" min:"1" max:"1<<40"`
	MaxCount int `default:"16384" min:"1" max:"1<<30"`
}

// WithDefaults returns c with every zero field set to its default.
func (c Config) WithDefaults() Config { return bounds.Fill(c) }

// Validate reports all faults at once. Call it on the result of WithDefaults.
func (c Config) Validate() error { return bounds.Check("stored", c) }

// ErrTooLarge is the error for a response that would take more than half of the room.
var ErrTooLarge = errors.New("server: the response takes more than half of the bytes for stored responses")

// entryBytes is about the memory of a stored response besides its bytes.
const entryBytes = 512

// Store keeps responses.
type Store struct {
	cfg Config

	mu     sync.Mutex
	byID   map[string]*entry
	owners map[string]*owner // by tenant, those that have responses
	bytes  int
}

// owner has the responses of a tenant.
type owner struct {
	tenant string
	recent list.List // of *entry, the most recently used first
	bytes  int
}

// entry is a stored response. Only its place in the list changes.
type entry struct {
	id     string
	of     *owner
	at     *list.Element
	bytes  int
	stored *responses.Stored // nil if it is in a file
}

// file is the form of a file.
type file struct {
	Tenant string `json:"tenant"`
	responses.Stored
}

const suffix = ".json"

// Open opens a store. With Dir it makes the directory, or reads what is there; files that are no responses stay.
func Open(cfg Config) (*Store, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, byID: map[string]*entry{}, owners: map[string]*owner{}}
	if cfg.Dir == "" {
		return s, nil
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("server: the directory for responses: %w; --responses-dir needs a place that this user may write to", err)
	}
	return s, s.scan()
}

// scan takes the responses in the directory, the oldest first.
func (s *Store) scan() error {
	all, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	type found struct {
		id    string
		nanos int64
	}
	var ids []found
	for _, f := range all {
		id, ok := strings.CutSuffix(f.Name(), suffix)
		if info, err := f.Info(); err == nil && ok && responses.ResponseOf(id) == id {
			ids = append(ids, found{id, info.ModTime().UnixNano()})
		}
	}
	slices.SortFunc(ids, func(a, b found) int { return int(max(-1, min(1, a.nanos-b.nanos))) })
	for _, f := range ids {
		if got, err := s.read(f.id); err == nil {
			s.insert(got.Tenant, &entry{id: f.id, bytes: sizeOf(&got.Stored)})
		}
	}
	return nil
}

func sizeOf(r *responses.Stored) int {
	return len(r.Input) + len(r.Response) + len(r.Previous) + len(r.Session) + entryBytes
}

func (s *Store) path(id string) string { return filepath.Join(s.cfg.Dir, id+suffix) }

func (s *Store) read(id string) (*file, error) {
	text, err := os.ReadFile(s.path(id))
	if err != nil {
		return nil, err
	}
	var f file
	return &f, json.Unmarshal(text, &f)
}

// write writes a file so that it is there as a whole or not at all, also after a crash.
func (s *Store) write(id string, f *file) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(s.cfg.Dir, "new-*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(text)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), s.path(id))
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}

// Put keeps a response of the tenant. The caller must not change it afterwards. The error is ErrTooLarge, or that of a file.
func (s *Store) Put(tenant, id string, r *responses.Stored) error {
	e := &entry{id: id, bytes: sizeOf(r), stored: r}
	if e.bytes > s.cfg.MaxBytes/2 {
		return ErrTooLarge
	}
	if s.cfg.Dir != "" {
		if err := s.write(id, &file{tenant, *r}); err != nil {
			return fmt.Errorf("server: %w", err)
		}
		e.stored = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.insert(tenant, e)
	return nil
}

// insert adds an entry and makes room.
func (s *Store) insert(tenant string, e *entry) {
	o := s.owners[tenant]
	if o == nil {
		o = &owner{tenant: tenant}
		s.owners[tenant] = o
	}
	e.of, e.at = o, o.recent.PushFront(e)
	o.bytes += e.bytes
	s.bytes += e.bytes
	s.byID[e.id] = e
	for s.bytes > s.cfg.MaxBytes || len(s.byID) > s.cfg.MaxCount {
		s.drop(s.largest().recent.Back().Value.(*entry))
	}
}

// largest returns the owner whose responses take the most bytes.
func (s *Store) largest() (most *owner) {
	for _, o := range s.owners {
		if most == nil || o.bytes > most.bytes || o.bytes == most.bytes && o.tenant < most.tenant {
			most = o
		}
	}
	return most
}

// drop forgets an entry.
func (s *Store) drop(e *entry) {
	delete(s.byID, e.id)
	s.bytes -= e.bytes
	e.of.bytes -= e.bytes
	if e.of.recent.Remove(e.at); e.of.recent.Len() == 0 {
		delete(s.owners, e.of.tenant)
	}
	if s.cfg.Dir != "" {
		os.Remove(s.path(e.id)) // if it stays, the next Open takes it, and makes room again
	}
}

// find returns the entry with this id of the tenant, nil if there is none.
func (s *Store) find(tenant, id string) *entry {
	if e := s.byID[id]; e != nil && e.of.tenant == tenant {
		return e
	}
	return nil
}

// Get returns the response with this id of the tenant. The caller must not change it.
func (s *Store) Get(tenant, id string) (*responses.Stored, bool) {
	s.mu.Lock()
	e := s.find(tenant, id)
	if e == nil {
		s.mu.Unlock()
		return nil, false
	}
	e.of.recent.MoveToFront(e.at)
	s.mu.Unlock()
	if e.stored != nil {
		return e.stored, true
	}
	f, err := s.read(id) // it may have had to make room by now
	if err != nil || f.Tenant != tenant {
		return nil, false
	}
	return &f.Stored, true
}

// Delete forgets the response with this id of the tenant. It reports whether there was one.
func (s *Store) Delete(tenant, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(tenant, id)
	if e != nil {
		s.drop(e)
	}
	return e != nil
}

// Bytes returns the bytes of all responses, and their number.
func (s *Store) Bytes() (bytes, count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes, len(s.byID)
}
