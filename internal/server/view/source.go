package view

import (
	"context"
	"strings"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/tokenizer"
)

// Source is what is looked at; *coppice.Node is one.
type Source interface {
	Info() engine.Info
	Stats(context.Context) (coppice.Stats, error)
	Running(context.Context) ([]scheduler.Run, error)
	Waiting(context.Context) ([]scheduler.Wait, error)
	Tree(context.Context, coppice.TreeQuery) (coppice.Tree, error)
	HitRates(ctx context.Context, capacityTokens []int) ([]float64, error)
}

var _ Source = (*coppice.Node)(nil)

// Texts turns tokens into a text to show, for Config.Text: what is no UTF-8, at either
// end of a run above all, becomes U+FFFD. It is nil without a tokenizer.
func Texts(tok *tokenizer.Tokenizer) func([]kv.Token) string {
	if tok == nil {
		return nil
	}
	var buf []byte
	return func(tokens []kv.Token) string {
		buf = tok.Decode(buf[:0], tokens, false)
		return strings.ToValidUTF8(string(buf), "\uFFFD")
	}
}
