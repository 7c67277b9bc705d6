package members

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events/bundle"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/chat"
	"github.com/coppice-llm/coppice/tokenizer/tokenfile"
)

// TokenizerSet is a tokenizer with its chat template. Without a tokenizer, prompts are compared
// by their bytes.
type TokenizerSet struct {
	Tokenizer *tokenizer.Tokenizer
	Template  *chat.Template
	Digest    string // of the bundle; "": unknown

	fetched bool // the set was fetched from a worker, not configured
}

// Exact reports whether prompts are compared by tokens.
func (t *TokenizerSet) Exact() bool { return t.Tokenizer != nil }

// tokenizers holds the current set.
type tokenizers struct {
	learning sync.Mutex // held by the keeper that is fetching a set
	swapping sync.Mutex // held from Config.Read until now is stored
	now      atomic.Pointer[TokenizerSet]
}

// Tokenizer returns the current set.
func (f *Fleet) Tokenizer() *TokenizerSet { return f.tokenizers.now.Load() }

// swapTokenizer replaces the set from by to. It is an error if from is no longer the current
// set, or if Config.Read refuses to.
func (f *Fleet) swapTokenizer(from, to *TokenizerSet) error {
	f.tokenizers.swapping.Lock()
	defer f.tokenizers.swapping.Unlock()
	if f.Tokenizer() != from {
		return errors.New("another tokenizer was set meanwhile")
	}
	err := f.cfg.Read(to)
	if err == nil {
		f.tokenizers.now.Store(to)
	}
	return err
}

// checkTokenizer returns a refusal if the tokenizer in card c of worker m differs from the
// current set. If the current set was fetched and no other joined worker has it, the set is
// dropped instead, and m is not refused.
func (f *Fleet) checkTokenizer(m *Member, c *card.Card) error {
	now := f.Tokenizer()
	if c.Tokenizer == "" || !now.Exact() || now.Digest == "" || now.Digest == c.Tokenizer {
		return nil
	}
	if now.fetched && !f.inUse(now.Digest, m) && f.swapTokenizer(now, &f.cfg.Tokenizer) == nil {
		f.log.Warn("the tokenizer is dropped: no worker has it any longer", m.Field())
		return nil
	}
	return refuse("worker %s has another tokenizer or chat template than the gateway, so its blocks would not be found: serve one model per fleet", m.url)
}

// inUse reports whether a joined member other than but has the tokenizer with this digest.
func (f *Fleet) inUse(digest string, but *Member) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.claims {
		if c := m.card(); m != but && c != nil && c.Tokenizer == digest {
			return true
		}
	}
	return false
}

// retry is a schedule of attempts. The first is due at once, the second 1 s later, and each
// further one after twice the time, up to a minute.
type retry struct {
	at   time.Time
	wait time.Duration
}

// due reports whether an attempt is due at now. If so, it schedules the next attempt.
func (r *retry) due(now time.Time) bool {
	if now.Before(r.at) {
		return false
	}
	r.wait = min(max(time.Second, 2*r.wait), time.Minute)
	r.at = now.Add(r.wait)
	return true
}

// fetchTimeout bounds the download of a worker's tokenizer.
const fetchTimeout = 30 * time.Second

// learnTokenizer fetches the worker's tokenizer in the background, if the fleet has no tokenizer
// yet and no other worker's is being fetched.
func (k *keeper) learnTokenizer(ctx context.Context) {
	f, c := k.f, k.m.card()
	if c == nil || c.Tokenizer == "" || f.Tokenizer().Exact() || !f.tokenizers.learning.TryLock() {
		return
	}
	if !k.fetch.due(time.Now()) {
		f.tokenizers.learning.Unlock()
		return
	}
	k.fetching.Go(func() {
		defer f.tokenizers.learning.Unlock()
		ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
		defer cancel()
		if err := f.fetchTokenizer(ctx, k.m, c); err != nil && !errors.Is(ctx.Err(), context.Canceled) {
			f.log.Warn("the worker's tokenizer can't be fetched: prompts are compared by their bytes", k.m.Field(), zap.Error(err))
		}
	})
}

// fetchTokenizer downloads a worker's bundle, checks it against the digest in the card, and
// makes it the current set.
func (f *Fleet) fetchTokenizer(ctx context.Context, m *Member, c *card.Card) error {
	before := f.Tokenizer()
	status, data, err := f.get(ctx, m, card.TokenizerPath, bundle.MaxBytes+1)
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
		return errors.New("its digest differs from the one in the card")
	}
	set := &TokenizerSet{Digest: b.Digest, fetched: true}
	if set.Tokenizer, set.Template, err = open(b); err != nil {
		return err
	}
	if err := f.swapTokenizer(before, set); err != nil {
		return err
	}
	f.log.Info("tokenizer fetched from worker", zap.String("worker", c.Name), zap.Int("bytes", len(data)), zap.Bool("chat template", set.Template != nil))
	return nil
}

// open unpacks a bundle and reads its tokenizer and chat template. The template is nil if the
// model has none or an invalid one.
func open(b *bundle.Bundle) (*tokenizer.Tokenizer, *chat.Template, error) {
	dir, err := os.MkdirTemp("", "coppice-tokenizer-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir) // everything has been read into memory by then
	if err := b.Unpack(dir); err != nil {
		return nil, nil, err
	}
	tok, err := tokenfile.Open(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		return nil, nil, err
	}
	template, err := chat.Open(dir)
	if err != nil && !errors.Is(err, chat.ErrInvalid) {
		return nil, nil, err
	}
	return tok, template, nil
}
