package stores

import (
	"errors"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/mempool"
)

// TestWithin checks that a call that does not return in time is given up with advice, and that what it
// gives later is released.
func TestWithin(t *testing.T) {
	hang, late := make(chan struct{}), make(chan int, 1)
	_, err := within(time.Millisecond, "/mnt/kv", func() (int, error) { <-hang; return 7, nil }, func(n int) { late <- n })
	if !errors.Is(err, mempool.ErrStuck) {
		t.Errorf("a call that hangs: %v", err)
	}
	close(hang)
	if n := <-late; n != 7 {
		t.Errorf("released is %d, want 7", n)
	}
	n, err := within(time.Minute, "", func() (int, error) { return 5, nil }, func(int) { t.Error("a result in time counts as late") })
	if n != 5 || err != nil {
		t.Errorf("a call in time: %d, %v", n, err)
	}
}
