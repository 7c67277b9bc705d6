package storetest

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
)

// unlinks returns a flaw that removes a record's file after a read that failed with cause.
func unlinks(cause error) flaw {
	return ending(mempool.Get, func(b *broken, op mempool.Op, d *mempool.Done) {
		if errors.Is(d.Err, cause) {
			records, _ := filepath.Glob(filepath.Join(b.options.Dir, "*", "*", op.Extent.Key.String()+"*"))
			for _, path := range records {
				_ = os.Remove(path)
			}
		}
	})
}

func sharedControls() []control {
	return []control{
		{check: "OwnFault", name: "removes a record where it has no descriptor", says: "get of extent", flaw: unlinks(syscall.EMFILE)},
		{check: "OwnFault", name: "removes a record whose handle is stale", says: "get of extent", flaw: unlinks(syscall.ESTALE)},
		{check: "OwnFault", name: "removes a record after EIO", says: "get of extent", flaw: unlinks(syscall.EIO)},
		{check: "OwnFault", name: "removes a record after EACCES", says: "get of extent", flaw: unlinks(syscall.EACCES)},
		{check: "OwnFault", name: "removes a record that was not there for a moment", says: "get of extent", flaw: unlinks(syscall.ENOENT)},
		{check: "OwnFault", name: "removes a record after one wrong byte", says: "get of extent", flaw: unlinks(mempool.ErrCorrupt)},
		{check: "Pipe", name: "waits for the writer of a pipe", says: hangs, flaw: instead(0, endsWith(blockio.ErrNotRegular))},
		{check: "Pipe", name: "finds a pipe", says: "found as a record", flaw: forgive(mempool.Probe, mempool.ErrMiss)},
		{check: "FutureLease", name: "waits for the end of a lease in the future", says: "are left in a store", flaw: flaw{options: func(p *past, o *Options) {
			if p.openings > 1 {
				o.Extents *= 2
			}
		}}},
	}
}
