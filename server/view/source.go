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

// Source is the observed node; *coppice.Node implements it.
type Source interface {
	Info() engine.Info
	Stats(context.Context) (coppice.Stats, error)
	Running(context.Context) ([]scheduler.Run, error)
	Waiting(context.Context) ([]scheduler.Wait, error)
	Tree(context.Context, coppice.TreeQuery) (coppice.Tree, error)
	HitRates(ctx context.Context, capacityTokens []int) ([]float64, error)
}

var _ Source = (*coppice.Node)(nil)

// Texts returns a function for Config.Text that decodes tokens. Invalid UTF-8, most often at
// either end of a run, becomes U+FFFD. It returns nil if tok is nil.
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
