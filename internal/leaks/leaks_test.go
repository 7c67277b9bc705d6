package leaks

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

// A goroutine that ends late is waited for, one that does not end is found: on a clock
// that goes on only while all wait.
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
