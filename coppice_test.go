package coppice_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/internal/leaks"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// nano is the directory of the smallest generated model, relative to the tests' working
// directory. root is the module's directory.
const nano = "path/to/model"

var root string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		tmp, err := os.MkdirTemp("", "coppice-root-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(tmp)
		if root, err = os.Getwd(); err != nil {
			panic(err)
		}
		if err := errors.Join(os.Chdir(tmp), os.MkdirAll(filepath.Dir(nano), 0o755), random.Generate(nano, random.Spec{Preset: random.Nano, Seed: 1})); err != nil {
			panic(err)
		}
		if dir := os.Getenv(parkTest); dir != "" {
			parkOn(dir)
		}
		return m.Run()
	}())
}

func open(t *testing.T, cfg coppice.Config) *coppice.Node {
	t.Helper()
	node, h := openHeld(t, cfg)
	h.outputs(noLimit)
	return node
}

// openHeld opens a node whose device completes no output until the test allows it.
func openHeld(t *testing.T, cfg coppice.Config) (*coppice.Node, *held) {
	t.Helper()
	m, err := model.Open(nano)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ignore := goleak.IgnoreCurrent()
	backend, err := cpu.Open(m, cpu.Config{KVTokens: 4096})
	if err != nil {
		t.Fatal(err)
	}
	h := &held{Backend: backend, closed: make(chan struct{})}
	cfg.Backend, cfg.Tokenizer = h, m.Tokenizer()
	node, err := coppice.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := node.Close(); err != nil {
			t.Error(err)
		}
		st, err := node.Stats(context.Background())
		if err != nil || st.LeakedPages != 0 {
			t.Errorf("%d pages leaked, %v", st.LeakedPages, err)
		}
		leaks.Check(t, ignore)
	})
	return node, h
}

// idle polls until no request is open.
func idle(t *testing.T, node *coppice.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		st, err := node.Stats(ctx)
		if err != nil {
			t.Fatalf("requests stay open: %v", err)
		}
		if st.Scheduler.Running+st.Scheduler.Waiting == 0 {
			return
		}
	}
}

func TestLeavingTheLoopAborts(t *testing.T) {
	node, h := openHeld(t, coppice.Config{})
	h.outputs(1000)
	for _, err := range node.Generate(context.Background(), coppice.Request{Prompt: "Light", MaxTokens: 3000, IgnoreEOS: true}) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	h.outputs(noLimit) // the request is aborted, and ends with the current step
	idle(t, node)
	h.outputs(1000)
	func() {
		defer func() { recover() }()
		for range node.Generate(context.Background(), coppice.Request{Prompt: "Light", MaxTokens: 3000, IgnoreEOS: true}) {
			panic("the caller's own")
		}
	}()
	h.outputs(noLimit)
	idle(t, node)
	if st, _ := node.Stats(context.Background()); st.Scheduler.Endings[coppice.Abort] != 2 {
		t.Errorf("endings:\n%v", st.Scheduler)
	}
}

func TestErrorsEndTheLoop(t *testing.T) {
	node, h := openHeld(t, coppice.Config{})
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, tc := range []struct {
		name string
		ctx  context.Context
		req  coppice.Request
		want error
	}{
		{"refused at the door", context.Background(), coppice.Request{}, coppice.ErrEmptyPrompt},
		{"refused by the scheduler", context.Background(), coppice.Request{Prompt: "a", MaxTokens: -1}, coppice.ErrInvalid},
		{"too long", context.Background(), coppice.Request{Prompt: strings.Repeat("abcdefgh ", 4000)}, coppice.ErrPromptTooLong},
		{"cancelled", cancelled, coppice.Request{Prompt: "a", MaxTokens: 3000, IgnoreEOS: true}, context.Canceled},
	} {
		n := 0
		for piece, err := range node.Generate(tc.ctx, tc.req) {
			n++
			if err == nil && piece.Ending == nil {
				continue
			}
			if !errors.Is(err, tc.want) {
				t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
			}
			n = 0
		}
		if n != 0 {
			t.Errorf("%s: the loop ended without an error", tc.name)
		}
	}
	h.outputs(noLimit)
	idle(t, node)
}

func TestEvents(t *testing.T) {
	node := open(t, coppice.Config{Scheduler: scheduler.Config{Events: true}})
	for piece, err := range node.Generate(context.Background(), coppice.Request{Prompt: strings.Repeat("light ", 20), MaxTokens: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		_ = piece
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	blocks, seq := 0, uint64(0)
	for event, err := range node.Events(ctx, 0) {
		if err != nil {
			break
		}
		if event.Seq < seq || event.Kind != kv.Stored {
			t.Errorf("after batch %d: %+v", seq, event)
		}
		seq = event.Seq
		if blocks += len(event.Blocks); blocks >= 2 {
			cancel()
		}
	}
	if blocks < 2 {
		t.Errorf("%d blocks stored", blocks)
	}
	for _, err := range node.Events(context.Background(), 1<<40) {
		if !errors.Is(err, coppice.ErrLagged) {
			t.Errorf("events that do not exist yet: %v", err)
		}
	}
}
