package gpucheck

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/kernels"
)

// DriverCheck is a check of a driver on one of its devices: a property that the CUDA backend relies on.
type DriverCheck struct {
	Name string
	// Loses is true if the device is lost after the check, until the process ends.
	Loses bool
	check func(p *probe)
}

// DriverChecks returns all checks of drivers. They use kernels of the backend. Every driver passes, on a
// device or without one.
func DriverChecks() []DriverCheck {
	return []DriverCheck{
		{"device", false, device}, {"memory", false, memory}, {"copies", false, copies}, {"modules", false, modules}, {"launch", false, launches},
		{"arguments", false, arguments}, {"shared memory", false, sharedMemory}, {"streams", false, streams}, {"events", false, events},
		{"graphs", false, graphs}, {"capturing", false, capturing}, {"invalid", false, invalid}, {"fault", true, lostAfterFault},
	}
}

// Run runs the check on device i of driver d.
func (c DriverCheck) Run(t testing.TB, d cudrv.Driver, i int) {
	runtime.LockOSThread() // a context is current per thread
	defer runtime.UnlockOSThread()
	context, err := d.Open(i)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { // also after Fatal
		if err := context.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}()
	p := &probe{t: t, d: d, i: i, Context: context}
	p.s = must(p, context.NewStream)
	c.check(p)
}

// probe has a context and a stream.
type probe struct {
	t testing.TB
	d cudrv.Driver
	i int // the device
	cudrv.Context
	s cudrv.Stream
}

func must[T any](b *probe, f func() (T, error)) T {
	b.t.Helper()
	v, err := f()
	b.ok(err)
	return v
}

func (b *probe) ok(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *probe) fails(what string, err, want error) {
	b.t.Helper()
	if !errors.Is(err, want) {
		b.t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func (b *probe) alloc(n int) cudrv.Ptr {
	b.t.Helper()
	p, err := b.Alloc(n)
	b.ok(err)
	return p
}

func (b *probe) host(n int) []byte {
	b.t.Helper()
	h, err := b.HostAlloc(n)
	b.ok(err)
	return h
}

// put allocates device memory with these words, and waits for the copy.
func (b *probe) put(v ...int32) cudrv.Ptr {
	b.t.Helper()
	h := b.host(4 * len(v))
	_, _ = binary.Encode(h, binary.LittleEndian, v)
	p := b.alloc(len(h))
	b.ok(b.CopyIn(b.s, p, h))
	b.ok(b.SyncStream(b.s))
	b.ok(b.HostFree(h))
	return p
}

// read returns n words, after all work of the stream.
func (b *probe) read(p cudrv.Ptr, n int) []int32 {
	b.t.Helper()
	h, v := b.host(4*n), make([]int32, n)
	b.ok(b.CopyOut(b.s, h, p))
	b.ok(b.SyncStream(b.s))
	_, _ = binary.Decode(h, binary.LittleEndian, v)
	b.ok(b.HostFree(h))
	return v
}

func (b *probe) function(module, name string) cudrv.Function {
	b.t.Helper()
	m, err := b.Load(kernels.PTX(module))
	b.ok(err)
	f, err := b.Function(m, name)
	b.ok(err)
	return f
}

// tableWriter launches table_write: it sets word index of a table of 64 words to value.
type tableWriter struct {
	b       *probe
	f       cudrv.Function
	table   cudrv.Ptr
	entries cudrv.Ptr
}

func newTableWriter(b *probe, index, value int32) *tableWriter {
	b.t.Helper()
	return &tableWriter{b, b.function("pages", "table_write"), b.put(make([]int32, 64)...), b.put(0, index, value)}
}

func (w *tableWriter) launch(s cudrv.Stream, table cudrv.Ptr) {
	w.b.t.Helper()
	w.b.ok(w.b.Launch(w.f, cudrv.Launch{Grid: [3]int{1}, Block: [3]int{256}, Stream: s, Args: cudrv.Args(table, w.entries, int32(1), int32(64), cudrv.Ptr(0))}))
}

func device(b *probe) {
	if v := must(b, b.d.Version); v < 12000 {
		b.t.Errorf("version %d, want 12000 or later", v)
	}
	n := must(b, b.d.Devices)
	p, err := b.d.Properties(b.i)
	b.ok(err)
	if n < 1 || p.Name == "" || p.Major < 8 || p.MemoryBytes <= 0 || p.Multiprocessors < 1 || p.SharedPerBlock < 96<<10 || p.MaxThreadsPerBlock < 1024 {
		b.t.Errorf("%d devices, the first %+v", n, p)
	}
	_, err = b.d.Properties(n)
	b.fails("the device after the last", err, cudrv.ErrNoDevice)
	_, err = b.d.Open(n)
	b.fails("opening the device after the last", err, cudrv.ErrNoDevice)
	b.ok(b.Bind())
}

func memory(b *probe) {
	free, total, err := b.MemInfo()
	b.ok(err)
	if free <= 0 || free > total {
		b.t.Errorf("%d bytes free of %d", free, total)
	}
	const size = 4 << 20
	p, q := b.alloc(size), b.alloc(1)
	if p%256 != 0 || q%256 != 0 || p == q {
		b.t.Errorf("allocations at %#x and %#x", p, q)
	}
	if now, _, err := b.MemInfo(); err != nil || now > free-size/2 {
		b.t.Errorf("%d bytes free after allocating %d of %d (%v)", now, size, free, err)
	}
	_, err = b.Alloc(total + size)
	b.fails("more than there is", err, cudrv.ErrMemory)
	b.ok(b.Free(p))
	b.ok(b.Free(q))
	if err := b.Free(p); err == nil {
		b.t.Error("a second Free of the same memory succeeded")
	}
	h := b.host(1000)
	if len(h) != 1000 {
		b.t.Errorf("%d bytes of host memory, want 1000", len(h))
	}
	b.ok(b.HostFree(h))
}

func copies(b *probe) {
	in, out := b.host(1000), b.host(1000)
	for i := range in {
		in[i] = byte(i * 7)
	}
	p, q := b.alloc(1000), b.alloc(1000)
	b.ok(b.CopyIn(b.s, p, in))
	b.ok(b.CopyWithin(b.s, q, p, 1000))
	b.ok(b.Fill(b.s, q+10, 3, 20))
	b.ok(b.Fill32(b.s, q+100, 0x01020304, 2))
	b.ok(b.CopyOut(b.s, out[:500], q))
	b.ok(b.CopyOut(b.s, out[500:], q+500))
	b.ok(b.SyncStream(b.s))
	want := bytes.Clone(in)
	copy(want[10:30], bytes.Repeat([]byte{3}, 20))
	copy(want[100:], []byte{4, 3, 2, 1, 4, 3, 2, 1})
	if !bytes.Equal(out, want) {
		b.t.Errorf("%v…, want %v…", out[:110], want[:110])
	}
}

func modules(b *probe) {
	for _, name := range kernels.Names() {
		m, err := b.Load(kernels.PTX(name))
		b.ok(err)
		_, err = b.Function(m, "no_such_kernel")
		b.fails("a kernel that is not there", err, cudrv.ErrNotFound)
	}
	_, err := b.Load([]byte("this is no PTX\x00"))
	b.fails("a text that is no PTX", err, cudrv.ErrImage)
}

func launches(b *probe) {
	w := newTableWriter(b, 5, 42)
	w.launch(b.s, w.table)
	if got := b.read(w.table, 64); got[5] != 42 || got[4] != 0 {
		b.t.Errorf("the table is %v", got)
	}
}

// arguments checks that a launch copies its arguments.
func arguments(b *probe) {
	w := newTableWriter(b, 1, 7)
	args := cudrv.Args(w.table, w.entries, int32(1), int32(64), cudrv.Ptr(0))
	b.ok(b.Launch(w.f, cudrv.Launch{Grid: [3]int{1}, Block: [3]int{256}, Stream: b.s, Args: args}))
	clear(args)
	if got := b.read(w.table, 2); got[1] != 7 {
		b.t.Errorf("the table is %v", got)
	}
}

// sharedMemory checks that a launch with more than 48 KiB needs SetMaxDynamicShared.
func sharedMemory(b *probe) {
	f := b.function("attention_128", "attn_prefill_128")
	l := cudrv.Launch{Grid: [3]int{1}, Block: [3]int{128}, SharedBytes: 64 << 10, Stream: b.s, Args: make([]byte, 84)}
	b.fails("64 KiB without asking", b.Launch(f, l), cudrv.ErrInvalid)
	b.ok(b.SetMaxDynamicShared(f, 64<<10))
	p, err := b.d.Properties(b.i)
	b.ok(err)
	b.fails("more than there is", b.SetMaxDynamicShared(f, p.SharedPerBlock+1), cudrv.ErrInvalid)
}
