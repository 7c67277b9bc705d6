package notes

import (
	"bytes"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/internal/record"
)

// TestNotes: values come back after a reopening, are replaced and dropped, sealed or not; a damaged byte anywhere, another
// secret or a file under another name is found out.
func TestNotes(t *testing.T) {
	sealer, err := record.NewSealer(rand.Reader, bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	other, err := record.NewSealer(rand.Reader, bytes.Repeat([]byte{2}, 32))
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*record.Sealer{"clear": nil, "sealed": sealer} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			open := func(s *record.Sealer) *Dir {
				d, err := Open(dir, record.Format{Sealer: s}, 4000, nil)
				if err != nil {
					t.Fatal(err)
				}
				return d
			}
			d := open(s)
			for _, value := range []string{"first", "", "second"} {
				if err := d.PutNote("agent", []byte(value)); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(d.PutNote("b", []byte("bee")), os.WriteFile(filepath.Join(dir, blockio.TempPrefix+"x"), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			d = open(s)
			var all []string
			err := d.EachNote(func(value []byte) bool { all = append(all, string(value)); return true })
			slices.Sort(all)
			if got, err2 := d.Note("agent"); string(got) != "second" || err != nil || err2 != nil || strings.Join(all, ",") != "bee,second" {
				t.Errorf("%q, %v, %v; all: %q", got, err, err2, all)
			}
			if _, err := d.Note("none"); !errors.Is(err, mempool.ErrMiss) {
				t.Errorf("no note: %v", err)
			}
			if err := d.PutNote("large", make([]byte, 4000)); !errors.Is(err, mempool.ErrFull) {
				t.Errorf("beyond the bound: %v", err)
			}
			if s != nil {
				if _, err := open(other).Note("agent"); !errors.Is(err, mempool.ErrMiss) {
					t.Errorf("another secret: %v", err)
				}
			}
			damaged(t, d, s != nil)
			if err := errors.Join(d.DropNote("agent"), d.DropNote("b"), d.DropNote("none")); err != nil || d.bytes != 0 {
				t.Errorf("%v, %d bytes are left", err, d.bytes)
			}
		})
	}
}

// damaged checks that no note is read from a file with a wrong byte, or from another's file.
func damaged(t *testing.T, d *Dir, sealed bool) {
	t.Helper()
	file, of := filepath.Join(d.dir, d.files("agent")[0]), filepath.Join(d.dir, d.files("b")[0])
	whole, err := os.ReadFile(file)
	if err != nil || sealed && bytes.Contains(whole, []byte("second")) {
		t.Errorf("%v, or the text can be read", err)
	}
	for i := range whole {
		bad := slices.Clone(whole)
		bad[i] ^= 1
		if err := os.WriteFile(file, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := d.Note("agent"); err == nil {
			t.Fatalf("byte %d is damaged, and the note is %q", i, got)
		}
	}
	if err := os.WriteFile(of, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Note("b"); !errors.Is(err, mempool.ErrCorrupt) {
		t.Errorf("a note under another's name: %v", err)
	}
}
