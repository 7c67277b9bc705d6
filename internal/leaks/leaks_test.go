package leaks

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

// Find waits for a goroutine that ends late and finds one that does not end. The test runs on a fake
// clock, which advances only while all goroutines wait.
func TestFind(t *testing.T) {
	here := goleak.IgnoreCurrent()
	synctest.Test(t, func(t *testing.T) {
		own := goleak.IgnoreCurrent()
		go time.Sleep(patience - time.Second)
		if err := Find(here, own); err != nil {
			t.Error(err)
		}
		done := make(chan struct{})
		defer close(done)
		go func() { <-done }()
		if Find(here, own) == nil {
			t.Error("a goroutine that waits for ever is not found")
		}
	})
}
