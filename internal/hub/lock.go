package hub

import (
	"context"
	"os"
	"path/filepath"
	"time"
)

// lockEvery is the time between attempts to take a lock that is held.
const lockEvery = 100 * time.Millisecond

// lockBlob takes the lock at path, which huggingface_hub uses, too. It waits for the lock until
// ctx ends. unlock releases it. The lock file stays: if it were removed, two processes could hold
// locks on different files of one name.
func lockBlob(ctx context.Context, path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(lockEvery)
	defer tick.Stop()
	for {
		ok, err := tryLock(f)
		if ok {
			return func() { f.Close() }, nil
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		}
	}
}
