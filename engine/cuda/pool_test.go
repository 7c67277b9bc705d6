package cuda

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/vm"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
)

// sharing is a driver whose device has one context, in which the test has allocated memory.
type sharing struct {
	*vm.Driver
	ctx cudrv.Context
}

func (s *sharing) Open(int) (cudrv.Context, error) { return s.ctx, nil }

// TestPoolMemory checks a pool in memory that the caller brings: the logits are those of a pool of the
// backend's own, KV is in that memory and nothing past its last page is written, and as many pages are used as
// fit. Memory that is too small or not aligned is refused.
func TestPoolMemory(t *testing.T) {
	m := openGolden(t, "nano", true)
	cfg := Config{Driver: vm.New(ptxvm.Config{MemoryBytes: 64 << 20}), MaxSlots: 1, MaxRows: 2, MaxTokens: 32}
	own := cfg
	own.Pages = 3
	b, err := Open(m, own)
	if err != nil {
		t.Fatal(err)
	}
	want, page := logitsAfter(t, b, prompt, len(prompt)), b.info.PageBytes
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}

	d := &sharing{Driver: vm.New(ptxvm.Config{MemoryBytes: 64 << 20})}
	if d.ctx, err = d.Driver.Open(0); err != nil {
		t.Fatal(err)
	}
	size := 3*page + page/2
	memory, err := d.ctx.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.ctx.NewStream()
	if err == nil {
		err = errors.Join(d.ctx.Fill(s, memory, 7, size), d.ctx.SyncStream(s))
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg.Driver = d
	for _, bad := range []struct {
		pool  PoolMemory
		pages int
		is    error
	}{{PoolMemory{Address: memory, Bytes: page - 1}, 0, ErrMemory}, {PoolMemory{Address: memory, Bytes: size}, 4, ErrMemory}, {PoolMemory{Address: memory + 16, Bytes: size}, 0, nil}, {PoolMemory{Bytes: size}, 0, nil}} {
		c := cfg
		c.Driver, c.Pool, c.Pages = vm.New(ptxvm.Config{MemoryBytes: 64 << 20}), bad.pool, bad.pages
		if _, err := Open(m, c); err == nil || bad.is != nil && !errors.Is(err, bad.is) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	cfg.Pool = PoolMemory{Address: memory, Bytes: size, Owner: d}
	if b, err = Open(m, cfg); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if b.info.NumPages != 3 {
		t.Fatalf("%d pages, want 3", b.info.NumPages)
	}
	if got := logitsAfter(t, b, prompt, len(prompt)); !slices.Equal(got, want) {
		t.Error("other logits than with a pool of the backend's own")
	}
	host, err := d.ctx.HostAlloc(size)
	if err == nil {
		err = errors.Join(d.ctx.CopyOut(s, host, memory), d.ctx.SyncStream(s))
	}
	if err != nil {
		t.Fatal(err)
	}
	if kept := bytes.Repeat([]byte{7}, page/2); !bytes.Equal(host[3*page:], kept) || !bytes.Equal(host[:page], make([]byte, page)) || bytes.Equal(host[2*page:3*page], make([]byte, page)) {
		t.Error("the memory does not hold two pages of zeros and one of KV, with the rest as it was")
	}
}
