package actors

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/internal/leaks"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// nano is the smallest generated model, made once for all tests.
var nano *model.Model

func TestMain(m *testing.M) {
	os.Exit(func() int {
		tmp, err := os.MkdirTemp("", "coppice-actors-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(tmp)
		dir := filepath.Join(tmp, "nano")
		if err := random.Generate(dir, random.Spec{Preset: random.Nano, Seed: 1}); err != nil {
			panic(err)
		}
		if nano, err = model.Open(dir); err != nil {
			panic(err)
		}
		defer nano.Close()
		shared() // its goroutines live as long as the OS process; start's leak check must not count them
		return m.Run()
	}())
}

// start runs a system on nano. At the end of the test it checks that Close returns wantErr and
// that no goroutine is left.
func start(t *testing.T, cfg Config, cpuCfg cpu.Config) *System {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	if cfg.Backend == nil {
		cfg.Backend = backend(t, cpuCfg)
	}
	cfg.Tokenizer = nano.Tokenizer()
	cfg.FormatTimeout = cmp.Or(cfg.FormatTimeout, time.Minute)
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		leaks.Check(t, ignore)
	})
	return s
}

func backend(t *testing.T, cfg cpu.Config) engine.Backend {
	t.Helper()
	if cfg.KVTokens == 0 {
		cfg.KVTokens = 4096
	}
	b, err := cpu.Open(nano, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// patience returns a context that fails a hanging test; nothing is expected to take long.
func patience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func open(t *testing.T, s *System, req Request) *Stream {
	t.Helper()
	stream, err := s.Open(req)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// drain reads a stream to its end and checks that it has exactly one ending.
func drain(t *testing.T, stream *Stream) (tokens []kv.Token, text string, e *Ending) {
	t.Helper()
	ctx := patience(t)
	for {
		piece, err := stream.Next(ctx)
		if ctx.Err() != nil {
			t.Fatal("a request hangs")
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if e != nil {
			t.Fatalf("a piece after the ending: %+v", piece)
		}
		tokens = append(tokens, piece.Tokens...)
		text += piece.Text
		e = piece.Ending
		if (err != nil) != (e != nil && e.Err != nil) {
			t.Fatalf("error %v with ending %+v", err, e)
		}
	}
	if e == nil {
		t.Fatal("a stream without an ending")
	}
	return tokens, text, e
}

// gauges waits until the given numbers of samples run and wait.
func gauges(t *testing.T, s *System, running, waiting int) {
	t.Helper()
	var last scheduler.Metrics
	for ctx := patience(t); last.Running != running || last.Waiting != waiting; {
		st, err := s.Stats(ctx)
		if err != nil {
			t.Fatalf("%v, want %d running and %d waiting:\n%v", err, running, waiting, last)
		}
		last = st.Scheduler
		runtime.Gosched() // on one processor, polling without it would starve the actors
	}
}

// credits waits until all credits are back.
func credits(t *testing.T, s *System) {
	t.Helper()
	for ctx := patience(t); ; {
		taken := s.requests.credits()
		if taken == 0 {
			return
		}
		if _, err := s.Stats(ctx); err != nil { // a round trip, instead of a sleep
			t.Fatalf("%v with %d credits taken", err, taken)
		}
		runtime.Gosched()
	}
}

// credits returns the number of credits in use.
func (o *openRequests) credits() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.taken
}

// conserve waits until an idle system holds no page, which moves between tiers may do for a moment. A leaked page is an
// error at once.
func conserve(t *testing.T, s *System) {
	t.Helper()
	ctx, last := patience(t), ""
	for {
		st, err := s.Stats(ctx)
		if err != nil {
			t.Fatalf("%v; idle, yet:\n%v", err, last)
		}
		m := st.Scheduler
		if m.HeldPages == 0 && m.Running == 0 && m.Waiting == 0 && st.LeakedPages == 0 {
			return
		}
		if last = m.String(); st.LeakedPages != 0 {
			t.Fatalf("%d pages are leaked:\n%v", st.LeakedPages, last)
		}
		runtime.Gosched()
	}
}
