package coppice_test

import (
	"context"
	"fmt"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// counter is a backend whose model continues every token with the next number. Backends that
// compute should also pass enginetest.Run.
type counter struct {
	last map[engine.Slot]kv.Token // the last token of each slot
}

func (*counter) Info() engine.Info {
	return engine.Info{Name: "counter", NumericsID: "counter/v1", Vocab: 1000, MaxPositions: 500, PageTokens: 4, NumPages: 100, PageBytes: 4,
		MaxSlots: 8, MaxRows: 8, MaxTokens: 64, MaxInflight: 2}
}

func (c *counter) Submit(b *engine.Batch) (engine.Ticket, error) {
	result := &engine.Result{Seq: b.Seq}
	for i := range b.Rows {
		row := &b.Rows[i]
		if n := len(row.Tokens); n > 0 {
			c.last[row.Slot] = row.Tokens[n-1]
		}
		if row.Sample {
			c.last[row.Slot]++
			result.Out = append(result.Out, engine.RowOut{Row: i, Token: c.last[row.Slot]})
		}
	}
	return completed{result}, nil
}

func (*counter) Close() error { return nil }

// completed is the ticket of a batch that has run.
type completed struct{ result *engine.Result }

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (completed) Done() <-chan struct{} { return closed }

func (t completed) Result() (*engine.Result, error) { return t.result, nil }

// A backend of one's own, without a tokenizer.
func Example_backend() {
	node, err := coppice.Open(coppice.Config{Backend: &counter{last: map[engine.Slot]kv.Token{}}})
	if err != nil {
		panic(err)
	}
	defer node.Close()
	for range 2 {
		r, err := node.Text(context.Background(), coppice.Request{Tokens: []kv.Token{5, 6, 7, 8, 9}, MaxTokens: 3})
		fmt.Println(r.Tokens, r.CachedTokens, err)
	}
	// Output:
	// [5 6 7 8 9 10 11 12] 0 <nil>
	// [5 6 7 8 9 10 11 12] 4 <nil>
}
