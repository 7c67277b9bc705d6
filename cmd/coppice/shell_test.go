package main

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// TestUnlessEnded checks that a signal is handled while reading a model never ends.
func TestUnlessEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	if v, err := unlessEnded(ctx, "it was there", func() (int, error) { return 7, nil }); v != 7 || err != nil {
		t.Errorf("%d, %v", v, err)
	}
	broken := errors.New("broken")
	if _, err := unlessEnded(ctx, "it was there", func() (int, error) { return 0, broken }); err != broken {
		t.Error(err)
	}
	begun, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	go func() {
		<-begun
		cancel()
	}()
	_, err := unlessEnded(ctx, "it was there", func() (int, error) {
		close(begun)
		<-release
		return 0, nil
	})
	if err == nil || !strings.Contains(err.Error(), "ended by a signal before it was there") {
		t.Error(err)
	}
}
