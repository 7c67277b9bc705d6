//go:build linux && (amd64 || arm64) && (cgo || purego) && !cuda

package cudrv_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/internal/dlopen"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/vm"
	"github.com/coppice-llm/coppice/engine/cuda/gpucheck"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
)

// library compiles C source to a shared library.
func library(t *testing.T, name, source string) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc")
	}
	c, path := filepath.Join(t.TempDir(), "stub.c"), filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(c, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.Command(gcc, "-shared", "-fPIC", "-o", path, c).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return path
}

// TestConformanceDlopen runs the checks through a shared library of stubs that call the interpreter.
func TestConformanceDlopen(t *testing.T) {
	path := library(t, "libcuda.so.1", stubSource(nil))
	if _, err := dlopen.Open(path); !errors.Is(err, cudrv.ErrNoDevice) {
		t.Errorf("a driver without a device: %v", err)
	}
	s := newStub(vm.New(ptxvm.Config{MemoryBytes: 64 << 20}))
	connect(t, path, s)
	d, err := dlopen.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	conform(t, d)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Load([]byte("no PTX")); err == nil || !strings.Contains(err.Error(), "no PTX") {
		t.Errorf("the assembler's message is missing: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if n := s.openContexts(); n != 0 {
		t.Errorf("%d contexts are still open", n)
	}
}

// judge is a testing.TB that notes whether a check has failed.
type judge struct {
	testing.TB
	failed bool
}

func (j *judge) Helper()               {}
func (j *judge) Errorf(string, ...any) { j.failed = true }
func (j *judge) Fatal(...any)          { panic(j) }

// finds reports whether the check of that name fails on driver d.
func finds(t *testing.T, d cudrv.Driver, check string) (failed bool) {
	t.Helper()
	j := &judge{TB: t}
	defer func() {
		if r := recover(); r == j {
			failed = true
		} else if r != nil {
			panic(r)
		}
	}()
	for _, c := range gpucheck.DriverChecks() {
		if c.Name == check {
			c.Run(j, d, 0)
			return j.failed
		}
	}
	t.Fatalf("no check %s", check)
	return false
}

// TestFlags checks that the suite fails drivers that pass other flags: streams that wait for the default
// stream, captures in the mode global, in which other threads can't allocate, and events without timing.
func TestFlags(t *testing.T) {
	path := library(t, "libcuda-flags.so.1", stubSource(nil))
	s := newStub(vm.New(ptxvm.Config{MemoryBytes: 1 << 20}))
	connect(t, path, s)
	d, err := dlopen.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		call  string
		flags uint64
		check string
	}{{"cuStreamCreate", 0, "capturing"}, {"cuStreamBeginCapture_v2", captureGlobal, "capturing"}, {"cuEventCreate", eventNoTiming, "events"}} {
		s.change = nil
		if finds(t, d, c.check) {
			t.Errorf("the check of %s fails without a planted bug", c.call)
		}
		s.change = func(call string, a []uint64) {
			if call == c.call {
				a[1] = c.flags
			}
		}
		if !finds(t, d, c.check) {
			t.Errorf("%s with flags %d passes", c.call, c.flags)
		}
	}
}

// connect makes the library's stubs call s.
func connect(t *testing.T, path string, s *stub) {
	t.Helper()
	handle, err := purego.Dlopen(path, purego.RTLD_NOW)
	if err != nil {
		t.Fatal(err)
	}
	variable, err := purego.Dlsym(handle, "coppice_stub")
	if err != nil {
		t.Fatal(err)
	}
	**(**uintptr)(unsafe.Pointer(&variable)) = purego.NewCallback(func(f uintptr, args *uint64) uintptr { return uintptr(s.call(int(f), args)) })
}

func TestUnavailable(t *testing.T) {
	_, err := dlopen.Open("libcuda-that-is-not-there.so.1")
	if !errors.Is(err, cudrv.ErrUnavailable) || !strings.Contains(err.Error(), "libcuda-that-is-not-there.so.1: ") {
		t.Errorf("no library: %v", err)
	}
	path := library(t, "libold.so", "int cuInit(int x) { return 0; }\n")
	if _, err := dlopen.Open(path); !errors.Is(err, cudrv.ErrUnavailable) {
		t.Errorf("a library without most calls: %v", err)
	}
	// Like the toolkit's stub, which exists only for linking.
	path = library(t, "libstub.so", strings.Replace(stubSource(nil), ": 100;", ": 34;", 1))
	if _, err := dlopen.Open(path); !errors.Is(err, cudrv.ErrUnavailable) {
		t.Errorf("a library that can't be initialised: %v", err)
	}
}

// TestThreads checks that calls fail on a thread without current context, and work after Bind.
func TestThreads(t *testing.T) {
	path := library(t, "libcuda-threads.so.1", stubSource(nil))
	connect(t, path, newStub(vm.New(ptxvm.Config{MemoryBytes: 1 << 20})))
	d, err := dlopen.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // so the goroutine below runs on another thread
	defer runtime.UnlockOSThread()
	c, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // without unlock: the thread ends with the goroutine
		_, _, before := c.MemInfo()
		bound := c.Bind()
		_, _, after := c.MemInfo()
		if before == nil {
			failed <- errors.New("MemInfo without Bind worked")
			return
		}
		failed <- errors.Join(bound, after)
	}()
	if err := <-failed; err != nil {
		t.Error(err)
	}
}
