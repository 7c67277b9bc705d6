package nats

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
)

// TestReopenBacksOff checks that a connection that was ended permanently is opened again after waits
// that double up to maxRetry, and that begin at the first one again once it could be opened.
func TestReopenBacksOff(t *testing.T) {
	const first = 100 * time.Millisecond
	gone, err := nats.Connect("nats://127.0.0.1:1", nats.RetryOnFailedConnect(true), nats.ReconnectWait(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	synctest.Test(t, func(t *testing.T) {
		var c client
		c.begin()
		last, attempts := time.Now(), 0
		waits := make(chan time.Duration, 20)
		connect := func(o nats.Option) (*nats.Conn, error) {
			waits <- time.Since(last)
			last = time.Now()
			if attempts++; attempts > 1 && attempts <= 9 {
				return nil, errors.New("no such file")
			}
			var options nats.Options
			if err := o(&options); err != nil {
				return nil, err
			}
			options.ClosedCB(gone) // it ends at once
			return gone, nil
		}
		if err := c.open(first, connect, func(*nats.Conn) error { return nil }); err != nil {
			t.Fatal(err)
		}
		var got []time.Duration
		for range 12 {
			got = append(got, <-waits)
		}
		c.cancel()
		c.wait.Wait()
		want := []time.Duration{0, first, 2 * first, 4 * first, 8 * first, 16 * first, 32 * first, maxRetry, maxRetry, maxRetry, first, first}
		if !slices.Equal(got, want) {
			t.Errorf("waits are %v, want %v", got, want)
		}
	})
}
