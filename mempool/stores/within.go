package stores

import (
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/mempool"
)

// within returns the results of call, or an error that names the directory dir if call takes longer
// than limit. If call returns later without an error, its result goes to late.
func within[T any](limit time.Duration, dir string, call func() (T, error), late func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	results := make(chan result, 1)
	go func() {
		v, err := call()
		results <- result{v, err}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case r := <-results:
		return r.value, r.err
	case <-timer.C:
		go func() {
			if r := <-results; r.err == nil {
				late(r.value)
			}
		}()
		var none T
		return none, fmt.Errorf("%w: %s has not answered for %v; check that its file system is mounted and its server runs", mempool.ErrStuck, dir, limit)
	}
}
