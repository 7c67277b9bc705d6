package coppice

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// cut is a device whose connection is cut at once.
type cut struct{}

func (cut) Info() engine.Info {
	return engine.Info{Name: "cut", Vocab: 100, MaxPositions: 100, PageTokens: 1, NumPages: 100, PageBytes: 4,
		MaxSlots: 2, MaxRows: 2, MaxTokens: 64, MaxInflight: 2}
}
func (cut) Submit(*engine.Batch) (engine.Ticket, error) {
	return nil, &engine.Error{Backend: "cut", Op: "submit", Err: fmt.Errorf("read: %w", io.EOF)}
}
func (cut) Close() error { return nil }

// An error that wraps io.EOF is an error, not the end of the pieces.
func TestGenerateYieldsErrorsThatWrapEOF(t *testing.T) {
	n, err := Open(Config{Backend: cut{}})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	endings := 0
	for piece, err := range n.Generate(context.Background(), Request{Tokens: []kv.Token{1}}) {
		if err != nil && piece.Ending != nil {
			endings++
		}
	}
	if endings != 1 {
		t.Errorf("%d endings", endings)
	}
}

func TestGenerateYieldsContextCauseEOF(t *testing.T) {
	n, err := Open(Config{Backend: cut{}})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(io.EOF)
	news := 0
	for range n.Generate(ctx, Request{Tokens: []kv.Token{1}}) {
		news++
	}
	if news == 0 {
		t.Error("the loop ends without an error")
	}
}
