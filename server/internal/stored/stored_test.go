package stored

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/coppice-llm/coppice/openai/responses"
)

func id(i int) string { return fmt.Sprintf("resp_%032x", i) }

func of(n int) *responses.Stored {
	return &responses.Stored{Input: []byte(`[]`), Response: fmt.Appendf(nil, `"%0*d"`, n, 7)}
}

func open(t *testing.T, cfg Config) *Store {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, s *Store, tenant string, i, n int) {
	t.Helper()
	if err := s.Put(tenant, id(i), of(n)); err != nil {
		t.Fatal(err)
	}
}

// each runs a test on a store in memory and on one in a directory.
func each(t *testing.T, cfg Config, test func(t *testing.T, s *Store)) {
	t.Run("memory", func(t *testing.T) { test(t, open(t, cfg)) })
	t.Run("dir", func(t *testing.T) {
		cfg.Dir = filepath.Join(t.TempDir(), "responses")
		test(t, open(t, cfg))
	})
}

// TestOwners: a response belongs to its tenant: others neither read nor delete it.
func TestOwners(t *testing.T) {
	each(t, Config{}, func(t *testing.T, s *Store) {
		put(t, s, "ann", 1, 8)
		if _, ok := s.Get("bob", id(1)); ok || s.Delete("bob", id(1)) {
			t.Error("bob has ann's response")
		}
		got, ok := s.Get("ann", id(1))
		if !ok || string(got.Response) != `"00000007"` {
			t.Errorf("got %v, %v", got, ok)
		}
		if !s.Delete("ann", id(1)) || s.Delete("ann", id(1)) {
			t.Error("it can't be deleted, or twice")
		}
		if _, ok := s.Get("ann", id(1)); ok {
			t.Error("it is there after it was deleted")
		}
		if bytes, count := s.Bytes(); bytes != 0 || count != 0 {
			t.Errorf("%d bytes, %d responses are left", bytes, count)
		}
	})
}

// TestRoom: the bounds of bytes and number hold, the least recently used response goes first, and a tenant that stores much
// drives out its own.
func TestRoom(t *testing.T) {
	each(t, Config{MaxCount: 4}, func(t *testing.T, s *Store) {
		put(t, s, "ann", 1, 8)
		for i := 2; i < 5; i++ {
			put(t, s, "bob", i, 8)
		}
		s.Get("bob", id(2))
		put(t, s, "bob", 5, 8) // makes room: 3 was used least recently of bob's, and bob has more than ann
		for i, want := range map[int]bool{1: true, 2: true, 3: false, 4: true, 5: true} {
			tenant := "bob"
			if i == 1 {
				tenant = "ann"
			}
			if _, ok := s.Get(tenant, id(i)); ok != want {
				t.Errorf("response %d: %v, want %v", i, ok, want)
			}
		}
	})
	most := 4 * (entryBytes + 100)
	each(t, Config{MaxBytes: most}, func(t *testing.T, s *Store) {
		for i := range 20 {
			put(t, s, "ann", i, 96)
			if bytes, _ := s.Bytes(); bytes > most {
				t.Fatalf("%d bytes, want at most %d", bytes, most)
			}
		}
		if err := s.Put("ann", id(99), of(most)); err != ErrTooLarge {
			t.Errorf("a response as large as all the room: %v", err)
		}
	})
}

// TestReopen: responses in a directory outlive the store, half-written and foreign files are no responses, and a smaller bound
// makes room, the oldest first.
func TestReopen(t *testing.T) {
	cfg := Config{Dir: t.TempDir()}
	s := open(t, cfg)
	put(t, s, "ann", 1, 8)
	put(t, s, "bob", 2, 8)
	for name, text := range map[string]string{"new-123": "{", id(3) + ".json": `{"tenant":"an`, "notes.json": "{}"} {
		if err := os.WriteFile(filepath.Join(cfg.Dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, cfg)
	if _, count := s.Bytes(); count != 2 {
		t.Errorf("%d responses, want 2", count)
	}
	if got, ok := s.Get("ann", id(1)); !ok || string(got.Response) != `"00000007"` {
		t.Errorf("ann's: %v, %v", got, ok)
	}
	if _, ok := s.Get("ann", id(2)); ok {
		t.Error("ann has bob's")
	}
	cfg.MaxCount = 1
	if _, count := open(t, cfg).Bytes(); count != 1 {
		t.Errorf("%d responses, want 1", count)
	}
}
