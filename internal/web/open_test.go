package web

import (
	"context"
	"errors"
	"net/http"
	"testing"
)

// TestOpenRequests: no more requests are admitted at a time than the limit, and none after the drain has
// begun. Shutdown waits for open requests, or ends them when ctx ends.
func TestOpenRequests(t *testing.T) {
	d := NewOpenRequests(1)
	if d.Enter() != nil || d.Enter() != ErrFull || d.Count() != 1 {
		t.Fatal("not one is let in")
	}
	ctx, end := d.Bound(t.Context())
	defer end()
	gone, cancel := context.WithCancelCause(t.Context())
	impatient, why := errors.New("impatient"), errors.New("shut")
	cancel(impatient)
	ended := make(chan error, 1)
	before := false
	go func() { ended <- d.Shutdown(gone, &http.Server{}, why, func() { before = true }) }()
	<-ctx.Done() // the request is ended
	if context.Cause(ctx) != why || d.Enter() != ErrDraining || !d.Draining() {
		t.Errorf("ended by %v", context.Cause(ctx))
	}
	d.Leave()
	if err := <-ended; err != impatient || !before {
		t.Errorf("%v, before %v", err, before)
	}
	if err := d.Shutdown(t.Context(), &http.Server{}, why, nil); err != nil {
		t.Error(err)
	}
}
