package gateway

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/gateway/prompt"
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/bundle"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// words is how prompts are read.
type words struct {
	reader *prompt.Reader
	digest string // of what the reader's tokenizer is from; "" is not known
	exact  bool   // by tokens, not by bytes
	// fetched: from a worker, and not given.
	fetched bool
}

// speaks tells whether the gateway makes the same tokens as a worker does. A tokenizer
// that was fetched gives way to another one when nobody who joined has it any more.
func (g *Gateway) speaks(m *member, c *card.Card) error {
	w := g.words.Load()
	if c.Tokenizer == "" || !w.exact || w.digest == "" || w.digest == c.Tokenizer {
		return nil
	}
	if w.fetched && !g.spoken(w.digest, m) && g.words.CompareAndSwap(w, g.bytes) {
		g.log.Warn("the tokenizer is given up: nobody has it any more", m.field())
		return nil
	}
	return refuse("worker %s makes tokens by another tokenizer or chat template than the gateway does, so what it holds would not be found: serve one model in a fleet", m.url)
}

// spoken tells whether another member than m has joined with a tokenizer.
func (g *Gateway) spoken(digest string, but *member) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.claims {
		m.mu.Lock()
		has := m != but && m.card != nil && m.card.Tokenizer == digest
		m.mu.Unlock()
		if has {
			return true
		}
	}
	return false
}

// retry is when to try again what failed: after a second, and then twice as long each
// time, up to a minute.
type retry struct {
	at   time.Time
	wait time.Duration
}

func (r *retry) due(now time.Time) bool {
	if now.Before(r.at) {
		return false
	}
	r.wait = min(max(time.Second, 2*r.wait), time.Minute)
	r.at = now.Add(r.wait)
	return true
}

// fetchTimeout is how long a worker may take to hand out its tokenizer.
const fetchTimeout = 30 * time.Second

// learnWords takes a worker's tokenizer for the gateway's, if it has none: beside all
// else, from one worker at a time.
func (m *member) learnWords(ctx context.Context) {
	g := m.g
	m.mu.Lock()
	c := m.card
	m.mu.Unlock()
	if c == nil || c.Tokenizer == "" || g.words.Load().exact || !g.learning.TryLock() {
		return
	}
	if !m.fetch.due(time.Now()) {
		g.learning.Unlock()
		return
	}
	m.fetching.Go(func() {
		defer g.learning.Unlock()
		ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
		defer cancel()
		if err := g.fetch(ctx, m, c); err != nil && !errors.Is(ctx.Err(), context.Canceled) {
			g.log.Warn("worker's tokenizer can't be had: prompts are compared by their bytes", m.field(), zap.Error(err))
		}
	})
}

// fetch takes a worker's tokenizer.
func (g *Gateway) fetch(ctx context.Context, m *member, c *card.Card) error {
	status, data, err := m.getUpTo(ctx, card.TokenizerPath, bundle.MaxBytes+1)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return errors.New(card.TokenizerPath + " answers with " + http.StatusText(status))
	}
	b, err := bundle.Of(data)
	if err != nil {
		return err
	}
	if b.Digest != c.Tokenizer {
		return errors.New("it is not the one of its card")
	}
	cfg := g.cfg.Prompt
	if cfg.Tokenizer, cfg.Template, err = open(b); err != nil {
		return err
	}
	reader, err := prompt.New(cfg)
	if err != nil {
		return err
	}
	g.words.Store(&words{reader: reader, digest: b.Digest, exact: true, fetched: true})
	g.log.Info("tokenizer taken from worker", zap.String("worker", c.Name), zap.Int("bytes", len(data)), zap.Bool("chat template", cfg.Template != nil))
	return nil
}

// open reads a bundle. A model without a template is no chat model.
func open(b *bundle.Bundle) (*tokenizer.Tokenizer, *chat.Template, error) {
	dir, err := os.MkdirTemp("", "coppice-tokenizer-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir) // all of it is in memory then
	if err := b.Unpack(dir); err != nil {
		return nil, nil, err
	}
	tok, err := tokenizer.Open(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		return nil, nil, err
	}
	template, err := chat.Open(dir)
	if err != nil && !errors.Is(err, chat.ErrInvalid) {
		return nil, nil, err
	}
	return tok, template, nil
}
