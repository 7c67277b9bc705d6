package storetest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/internal/leaks"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/checksum"
	"github.com/coppice-llm/coppice/mempool/internal/record"
)

// RunSealed checks what the stores of h do with records that are sealed, with the right secret,
// without one, with another and with several, and with records that were written or moved
// by a process without the secret.
func RunSealed(t *testing.T, h Harness) {
	for name, run := range map[string]func(*rig){
		"Hides": sealedHides, "Forged": sealedForged, "Swapped": sealedSwapped, "Missing": sealedMissing, "Before": sealedBefore,
		"Wrong": sealedWrong, "Rotated": sealedRotated,
	} {
		t.Run(name, func(t *testing.T) {
			h := h
			h.Sealer = Sealer(t, 1)
			judge(t, h, check{name: name, run: run}, patience)
			leaks.Check(t)
		})
	}
}

// with closes the store, and opens it with the secrets of s, or unsealed if s is nil.
func (r *rig) with(s *record.Sealer) {
	r.Helper()
	r.close()
	r.opts.Sealer, r.opts.Identity.Sealed = s, s != nil
	r.open()
}

// place is where a record is.
type place struct {
	path string
	at   int64
}

// places finds the sealed records in the directory's files.
func (r *rig) places() map[mempool.Key]place {
	r.Helper()
	found := map[mempool.Key]place{}
	f := record.FormatOf(&r.opts.Identity, r.opts.Sealer)
	for path, b := range filesOf(r, r.opts.Dir) {
		for at := 0; at+f.HeaderBytes() <= len(b); at += f.SlotBytes() {
			if rec, err := f.ParseHeader(b[at:]); err == nil {
				found[rec.Key] = place{path, int64(at)}
			}
		}
	}
	return found
}

// filesOf returns the content of a directory's files, by path.
func filesOf(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			all[path], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// overwrite writes b at a place.
func overwrite(t testing.TB, p place, b []byte) {
	t.Helper()
	f, err := os.OpenFile(p.path, os.O_RDWR, 0)
	if err == nil {
		_, err = f.WriteAt(b, p.at)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// sealedHides looks for what a record says, in all bytes and names in the directory.
func sealedHides(r *rig) {
	xs := r.chain("salt-of-the-tenant", 0x51525354, 56)
	r.put(xs...)
	r.flush()
	r.close()
	secrets := map[string][]byte{"salt": []byte("salt-of-the-tenant"), "page": r.content(&xs[0])[1][:32]}
	for i := range xs {
		secrets["key "+xs[i].Key.Short()] = xs[i].Key[:]
		secrets["key in hexadecimal "+xs[i].Key.Short()] = []byte(xs[i].Key.String())
	}
	for pair := range slices.Chunk(xs[1].Tokens, 2) { // a single token's four bytes may occur by chance
		secrets["tokens"] = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, uint32(pair[0])), uint32(pair[1]))
		for path, b := range filesOf(r, r.opts.Dir) {
			for what, secret := range secrets {
				if bytes.Contains(b, secret) || strings.Contains(path, string(secret)) {
					r.Errorf("%s shows the %s", path, what)
				}
			}
		}
	}
	if n := len(r.places()); n != len(xs) {
		r.Errorf("%d sealed records are in the files, want %d", n, len(xs))
	}
	before := filesOf(r, r.opts.Dir)
	r.open()
	if !maps.EqualFunc(before, filesOf(r, r.opts.Dir), bytes.Equal) { // a disk's index is removed if it is not understood
		r.Error("opening the directory changes its files")
	}
	r.get(xs...)
}

// sealedForged replaces records by what a process without the secret can make: zeroed pages, and a
// record with a right checksum that is not sealed. None may be served.
func sealedForged(r *rig) {
	f := record.FormatOf(&r.opts.Identity, r.opts.Sealer)
	plain := f.Unsealed()
	for what, forge := range map[string]func(x *mempool.Extent, p place){
		"zeroed pages": func(_ *mempool.Extent, p place) {
			p.at += int64(f.HeaderBytes())
			overwrite(r, p, make([]byte, r.layout.ExtentBytes()))
		},
		"not sealed": func(x *mempool.Extent, p place) {
			n := r.layout.Bytes(x)
			b := make([]byte, f.RecordBytes(n))
			rec := record.Record{Extent: *x, Seq: 1, PayloadBytes: n, PayloadSum: checksum.Sum(make([]byte, n))}
			if err := plain.Encode(b[:plain.RecordBytes(n)], &rec); err != nil {
				r.Fatal(err)
			}
			overwrite(r, p, b)
		},
	} {
		x := r.chain(what, 0, 16)[0]
		r.put(x)
		r.close()
		forge(&x, r.places()[x.Key])
		r.open()
		if d := r.tryGet(&x); d.Err == nil {
			r.Errorf("%s: the record is served", what)
		}
		r.put(x)
		r.get(x)
	}
}

// sealedSwapped exchanges two records, and then only their pages. A record may be found only under its
// own key, and with its own pages.
func sealedSwapped(r *rig) {
	f := record.FormatOf(&r.opts.Identity, r.opts.Sealer)
	for _, from := range []int{0, f.HeaderBytes()} {
		x, y := r.chain("x", from, 16)[0], r.chain("y", from, 16)[0]
		r.put(x, y)
		r.close()
		files, at := filesOf(r, r.opts.Dir), r.places()
		cut := func(p place) []byte { return files[p.path][p.at+int64(from) : p.at+int64(f.SlotBytes())] }
		px, py := at[x.Key], at[y.Key]
		bx, by := slices.Clone(cut(px)), slices.Clone(cut(py))
		px.at, py.at = px.at+int64(from), py.at+int64(from)
		overwrite(r, px, by)
		overwrite(r, py, bx)
		r.open()
		for _, z := range []mempool.Extent{x, y} { // tryGet compares the bytes
			if d := r.tryGet(&z); d.Err == nil && (from > 0 || r.store.Info().Shared) {
				r.Errorf("%s is served from another record's place", z.Namespace.Salt)
			}
		}
	}
}

// sealedMissing opens a directory of sealed records without a secret.
func sealedMissing(r *rig) {
	xs := r.chain("a", 0, 48)
	r.put(xs...)
	seal := r.opts.Sealer
	r.with(nil)
	if w := strings.Join(r.store.Info().Warnings, "; "); !strings.Contains(w, "--kv-key") {
		r.Errorf("warnings: %q", w)
	}
	r.expect(r.tryGet(&xs[0]), mempool.ErrMiss)
	r.put(xs...)
	r.get(xs...)
	r.with(seal)
	r.get(xs...)
}

// sealedBefore opens a directory of records that are not sealed with a secret.
func sealedBefore(r *rig) {
	xs := r.chain("a", 0, 48)
	seal := r.opts.Sealer
	r.with(nil)
	r.put(xs...)
	r.with(seal)
	if w := strings.Join(r.store.Info().Warnings, "; "); !strings.Contains(w, "clear text") || !strings.Contains(w, "prune") {
		r.Errorf("warnings: %q", w)
	}
	r.expect(r.tryGet(&xs[0]), mempool.ErrMiss)
	r.put(xs[0])
	r.with(nil)
	r.get(xs...)
}

// sealedWrong opens a directory with another secret. That must fail and change nothing.
func sealedWrong(r *rig) {
	xs := r.chain("a", 0, 48)
	r.put(xs...)
	r.close()
	before := filesOf(r, r.opts.Dir)
	o := r.opts
	o.Sealer = Sealer(r, 2)
	if s, err := r.h.Open(o); !errors.Is(err, mempool.ErrForeign) || !strings.Contains(err.Error(), "further line") {
		r.Errorf("opened with another secret: %v", err)
		if err == nil {
			s.Close()
		}
	}
	if !maps.EqualFunc(before, filesOf(r, r.opts.Dir), bytes.Equal) {
		r.Error("the files have changed")
	}
	r.open()
	r.get(xs...)
}

// sealedRotated adds a secret before the old one, and then removes the old one.
func sealedRotated(r *rig) {
	xs, old := r.chain("a", 0, 64), Sealer(r, 1)
	r.put(xs[:2]...)
	r.with(Sealer(r, 2, 1))
	r.get(xs[:2]...)
	r.put(xs...) // children of parents under the old secret
	r.get(xs...)
	if len(r.places()) != len(xs) {
		r.Errorf("%d records are in the files, want %d", len(r.places()), len(xs))
	}
	young := r.chain("young", 0, 32)
	r.put(young...)
	r.drop(&xs[3])
	r.expect(r.tryGet(&xs[3]), mempool.ErrMiss)
	r.with(Sealer(r, 2))
	r.flush()
	r.get(young...)
	r.expect(r.tryGet(&xs[0]), mempool.ErrMiss)
	r.opts.Sealer = old
	if n := len(r.places()); n != 2 {
		r.Errorf("%d records of the old secret are left, want 2", n)
	}
	r.with(old) // it has sealed records here: a roll-back
	r.get(xs[:2]...)
	r.expect(r.tryGet(&young[0]), mempool.ErrMiss)
	r.with(Sealer(r, 1, 2))
	r.get(xs[:2]...)
	r.get(young...)
}
