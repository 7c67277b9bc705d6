//go:build linux && (amd64 || arm64) && (cgo || purego) && !cuda

package cudrv_test

import (
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cuda"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/internal/dlopen"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/vm"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/kv"
)

// TestBackend checks that the backend binds its context on each thread that calls the driver, and
// releases all contexts.
func TestBackend(t *testing.T) {
	dir := t.TempDir()
	if err := random.Generate(dir, random.Spec{Preset: random.Nano, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	m, err := model.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	path := library(t, "libcuda-backend.so.1", stubSource(nil))
	s := newStub(vm.New(ptxvm.Config{MemoryBytes: 64 << 20}))
	connect(t, path, s)
	d, err := dlopen.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := cuda.Open(m, cuda.Config{Driver: d, MaxSlots: 2, MaxRows: 2, MaxTokens: 64})
	if err != nil {
		t.Fatal(err)
	}
	host, err := b.HostAlloc(b.Info().PageBytes)
	if err != nil {
		t.Fatal(err)
	}
	batch := &engine.Batch{Seq: 1, Binds: []engine.SlotBind{{}}, Rows: []engine.Row{{Tokens: []kv.Token{1, 2, 3}, Pages: []kv.PageID{1}, Sample: true}}}
	for range 2 {
		ticket, err := b.Submit(batch)
		if err != nil {
			t.Fatal(err)
		}
		<-ticket.Done()
		res, err := ticket.Result()
		if err != nil || len(res.Out) != 1 || res.Out[0].Err != nil {
			t.Fatalf("%+v, %v", res, err)
		}
		batch = &engine.Batch{Seq: 2, Rows: []engine.Row{{Start: 3, Deferred: true, Sample: true, SampleIndex: 1}}}
	}
	if err := b.Move(&engine.Move{ID: 1, From: kv.TierDevice, To: kv.TierHost, Pages: []kv.PageID{1}}, [][]byte{host}); err != nil {
		t.Fatal(err)
	}
	<-b.Ready()
	if moved := b.Moved(nil); len(moved) != 1 || moved[0] != (engine.Moved{ID: 1}) {
		t.Fatalf("moved: %v", moved)
	}
	b.HostFree(host)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if n := s.openContexts(); n != 0 {
		t.Errorf("%d contexts are still open", n)
	}
}
