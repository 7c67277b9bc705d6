package storetest

import (
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/internal/record"
)

// checkOwnFault checks that a fault of this process does not cost other processes a record: the read
// fails and this process has the record no longer, but the next store in the directory reads it.
func checkOwnFault(r *rig) {
	for _, p := range []blockio.Point{blockio.Lookup, blockio.Read} {
		for _, f := range []blockio.Fault{blockio.NoFiles, blockio.Stale, blockio.IOError, blockio.Refused, blockio.NoEntry, blockio.ShortRead, blockio.FlipBit} {
			if p == blockio.Lookup && (f == blockio.ShortRead || f == blockio.FlipBit) { // no bytes move there
				continue
			}
			xs := r.chain(p.String()+f.String(), 0, 48)
			r.put(xs...)
			r.opts.Inject.Plant(p, f, 1, f != blockio.FlipBit)
			if d := r.tryGet(&xs[1]); d.Err == nil {
				r.Errorf("%v at %v: the read succeeds", f, p)
			}
			r.opts.Inject.Clear()
			if p == blockio.Read || f != blockio.NoEntry { // as if another process had removed the record and put it again
				r.expect(r.tryGet(&xs[1]), mempool.ErrMiss)
			}
			r.reopen()
			r.get(xs...)
			r.remove(xs...)
		}
	}
}

// file returns the path of the file that holds a record of x. A shared directory has a file for each
// record, with the name of the key's record.
func (r *rig) file(x *mempool.Extent) string {
	r.Helper()
	f := record.FormatOf(&r.opts.Identity, r.opts.Sealer)
	for at := range filesOf(r, r.opts.Dir) {
		for n := range f.Names(x.Key) {
			if strings.Contains(at, n.String()) {
				return at
			}
		}
	}
	r.Fatalf("no file is named by %v", x.Key)
	return ""
}

// checkPipe puts a pipe in the place of a record. A read of it must end, without a writer of the pipe,
// and the next put of the extent must replace it.
func checkPipe(r *rig) {
	x := r.chain("a", 0, 16)[0]
	r.put(x)
	path := r.file(&x)
	if err := os.Remove(path); err != nil {
		r.Fatal(err)
	}
	if !makePipe(path) {
		return // this system has none
	}
	if d := r.tryGet(&x); d.Err == nil {
		r.Error("a pipe is read as a record")
	}
	if r.has(&x) {
		r.Error("a pipe is found as a record")
	}
	r.flush()
	r.put(x)
	r.get(x)
	r.balance(1)
}

// checkFutureLease leaves the lease of a process that was killed, dated a year in the future. The
// quota must be kept all the same.
func checkFutureLease(r *rig) {
	for i := range r.opts.Extents / 4 {
		r.put(r.chain(string(rune('a'+i)), 0, 64)...)
	}
	r.flush()
	before := small(r, r.opts.Dir)
	r.close()
	future, leases := time.Now().AddDate(1, 0, 0), 0
	for path, content := range before {
		if _, err := os.Stat(path); err == nil {
			continue
		}
		if err := os.WriteFile(path, content, blockio.FileMode); err != nil {
			r.Fatal(err)
		}
		if err := os.Chtimes(path, future, future); err != nil {
			r.Fatal(err)
		}
		leases++
	}
	if leases != 1 {
		r.Errorf("%d files are of a process and not of the directory, want its lease", leases)
	}
	r.opts.Extents /= 2
	r.open()
	r.flush()
	if n := r.store.Metrics().Extents; n == 0 || n > r.opts.Extents {
		r.Errorf("%d extents are left in a store of %d", n, r.opts.Extents)
	}
}

// small returns the content of the directory's files that hold no record, by path.
func small(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	files := filesOf(t, dir)
	maps.DeleteFunc(files, func(_ string, content []byte) bool { return len(content) >= blockio.Align })
	return files
}
