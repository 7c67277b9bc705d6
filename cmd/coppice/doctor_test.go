package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/cuda"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
)

// healthy returns the facts of a machine that needs no action.
func healthy() *doctorFacts {
	return &doctorFacts{
		Version: "v0.1.0", Go: "go1.26.8", Target: "linux/amd64",
		System: systemFacts{Name: "Debian GNU/Linux 12 (bookworm)", Kernel: "6.1.0-18-amd64", Container: "Docker"},
		CPU: cpuFacts{Brand: "AMD EPYC 7B13", Arch: "amd64", Cores: 32, Usable: 64, Threads: 4, Features: []string{"AVX2", "FMA", "F16C", "BMI2"},
			ISAs: []cpu.ISA{cpu.Portable, cpu.AVX2}, Tests: []error{nil, nil}},
		Memory: memory{Total: 64e9, Available: 50e9, Limit: 8e9, Used: 1e9, Group: "/sys/fs/cgroup/system.slice/coppice.service"},
		Load:   loadFacts{Model: "hf:a/b:Q4_K_M", WeightBytes: 1e9, KVBytes: 3e9, KVTokens: 65536},
		GPU:    gpuFacts{Kernel: "580.65.06", CUDA: 13000, Devices: []gpuDevice{{Name: "NVIDIA H100 80GB HBM3", Bytes: 85e9}}},
		Dirs: []dirFacts{
			{Check: "models", Use: forModels, Path: "/home/a/.cache/huggingface/hub", Bytes: 12.3e9, Partial: true, Free: 100e9},
			{Check: "temp", Use: forTemp, Path: "/tmp", Want: 64 << 20, Free: 10e9},
			{Check: "kv-disk", Use: forTier, Path: "/var/cache/coppice", Want: 20e9, Missing: true, Free: 30e9},
		},
		Files: filesFacts{Limit: 524288, Hard: 524288, Conns: 8192},
		Clock: clockFacts{Now: time.Date(2026, 11, 24, 4, 5, 6, 7, time.UTC), Step: 30, Sync: "yes"},
		Ports: []portFacts{{Command: "serve", Level: fails, Addr: "127.0.0.1:8080"}, {Command: "route", Level: warns, Addr: "127.0.0.1:8000"}},
	}
}

// sick returns the facts of a machine on which much is wrong.
func sick() *doctorFacts {
	f := healthy()
	f.CPU.Tests[1] = errors.Join(errors.New("cpu: gemm1x64f32: lane 3 is 1, want 2"), errors.New("cpu: b"), errors.New("cpu: c"), errors.New("cpu: d"))
	f.Memory.Used = 5.5e9
	f.GPU = gpuFacts{Kernel: "535.104.05", Err: fmt.Errorf("%w: libcuda.so.1: cannot open shared object file: No such file or directory", cudrv.ErrUnavailable)}
	f.Dirs[0].Err = &os.PathError{Op: "open", Path: f.Dirs[0].Path, Err: syscall.EACCES}
	f.Dirs[1].Write = &os.PathError{Op: "access", Path: "/tmp", Err: syscall.EROFS}
	f.Dirs[2].Silent = true
	f.Files.Limit, f.Files.Hard = 1024, 1024
	f.Clock.Sync = "no"
	f.Ports[0].Err, f.Ports[0].Holder = syscall.EADDRINUSE, "coppice\x1b[2J (process 12)"
	return f
}

// TestDoctorOutput compares the lines for made facts with those in testdata/doctor; -rewrite replaces
// them.
func TestDoctorOutput(t *testing.T) {
	machines := map[string]*doctorFacts{"healthy": healthy(), "sick": sick(),
		"unknown": {Version: "devel", Go: "go1.26.8", Target: "plan9/arm64", System: systemFacts{Name: "plan9"},
			CPU: cpuFacts{Arch: "arm64", Usable: 8, Threads: 8, ISAs: []cpu.ISA{cpu.Portable}, Tests: []error{nil}},
			GPU: gpuFacts{Err: cudrv.ErrUnavailable}, Dirs: []dirFacts{{Check: "models", Err: errors.New("this user has no home directory")}, {Check: "temp", Use: forTemp, Path: "/tmp", Free: -1}},
			Files: filesFacts{Conns: 8192}, Clock: clockFacts{Now: time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC), Step: 100, Sync: "unknown"}}}
	datadriven.RunTest(t, "testdata/doctor", func(t *testing.T, d *datadriven.TestData) string {
		facts := machines[d.Cmd]
		if facts == nil {
			t.Fatalf("unknown command %q", d.Cmd)
		}
		var out strings.Builder
		if err := writeFindings(&out, facts.judge()); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if n := width(strings.TrimSuffix(line, "\n")); n > lineWidth {
				t.Errorf("%d columns: %s", n, line)
			}
		}
		return out.String()
	})
}

// doctorCase changes a healthy machine. The finding of a check then has this level, and this text in
// its line.
type doctorCase struct {
	check  string
	level  severity
	want   string
	change func(*doctorFacts)
}

// judged checks the finding of each case, and that no other finding needs an action. Cases come in
// pairs where a number has a threshold: one on each side.
func judged(t *testing.T, cases []doctorCase) {
	t.Helper()
	for _, tc := range cases {
		facts := healthy()
		tc.change(facts)
		hit := false
		for _, f := range facts.judge() {
			line := f.Found + " " + f.ending()
			switch {
			case f.Check == tc.check && f.Level == tc.level && strings.Contains(line, tc.want):
				hit = true
			case f.Level != fine:
				t.Errorf("%s, %q: also %s: %s", tc.check, tc.want, f.Check, line)
			}
			if (f.Level == fine) != (f.Problem == "" && f.Do == "") {
				t.Errorf("%s: a problem without a remedy, or the reverse: %+v", tc.check, f)
			}
		}
		if !hit {
			t.Errorf("no finding %s of level %s has %q: %+v", tc.check, tc.level, tc.want, facts.judge())
		}
	}
}

// noModel removes the model of the cache, besides another change.
func noModel(change func(*doctorFacts)) func(*doctorFacts) {
	return func(f *doctorFacts) { f.Load = loadFacts{KVTokens: 65536}; change(f) }
}

func TestDoctorCompute(t *testing.T) {
	available := func(n int64) func(*doctorFacts) {
		return func(f *doctorFacts) { f.Memory = memory{Total: 64e9, Available: n} }
	}
	load := func(weights, kv, available int64) func(*doctorFacts) {
		return func(f *doctorFacts) {
			f.Load.WeightBytes, f.Load.KVBytes = weights, kv
			f.Memory = memory{Total: 64e9, Available: available}
		}
	}
	forced := func(isa string) func(*doctorFacts) { return func(f *doctorFacts) { f.CPU.Forced = isa } }
	judged(t, []doctorCase{
		{"kernels", fine, "avx2, as COPPICE_CPU says", forced("avx2")},
		{"kernels", warns, "unset COPPICE_CPU", forced("portable")},
		{"kernels", fails, `COPPICE_CPU is "avx512"; this CPU can run portable, avx2`, forced("avx512")},
		{"kernels", warns, "no AVX2 with FMA", func(f *doctorFacts) { f.CPU.ISAs, f.CPU.Tests = f.CPU.ISAs[:1], f.CPU.Tests[:1] }},

		{"memory", fine, "no lower limit", available(64e9)},
		{"memory", fine, "no lower limit", noModel(available(leastMemory))},
		{"memory", warns, "268.4 MB can be had", noModel(available(leastMemory - 1))},
		{"memory", fine, "unknown on this system", func(f *doctorFacts) { f.Memory = memory{} }},

		{"serve", fine, "up to 3.0 GB of KV", load(1e9, 3e9, 4e9)},
		{"serve", warns, "--kv-tokens 58368, or a smaller --kv-type", load(1e9, 3e9, 4e9-1)},
		{"serve", warns, "end other processes, or raise the limit", load(1e9, 3e9, 1e9)},
		{"serve", fails, "give --model a smaller one", load(1e9, 3e9, 1e9-1)},
		{"serve", fine, "the speaking model", noModel(func(*doctorFacts) {})},
		{"serve", fails, "set HF_HOME", func(f *doctorFacts) { f.Load = loadFacts{Silent: true} }},

		{"gpu", fine, "no NVIDIA driver", func(f *doctorFacts) { f.GPU = gpuFacts{Err: cudrv.ErrUnavailable} }},
		{"gpu", warns, "it does not answer", func(f *doctorFacts) { f.GPU = gpuFacts{Silent: true} }},
		{"gpu", warns, "CUDA_VISIBLE_DEVICES", func(f *doctorFacts) { f.GPU = gpuFacts{Kernel: "580.1", Err: cudrv.ErrNoDevice} }},
		{"gpu 0", warns, "Update NVIDIA's driver", func(f *doctorFacts) { f.GPU.Devices[0].Err = cuda.ErrOld }},
	})
}

func TestDoctorRoom(t *testing.T) {
	dir := func(n int, change func(d *dirFacts)) func(*doctorFacts) {
		return func(f *doctorFacts) { change(&f.Dirs[n]) }
	}
	judged(t, []doctorCase{
		{"models", warns, "no answer", dir(0, func(d *dirFacts) { d.Silent = true })},
		{"models", warns, "pull can't store", dir(0, func(d *dirFacts) { d.Write = syscall.EACCES })},
		{"models", warns, "is a file", dir(0, func(d *dirFacts) { d.Err = errors.New("is a file") })},
		{"models", fine, "not made yet", dir(0, func(d *dirFacts) { d.Missing = true })},
		{"models", fine, "1.0 GB free", dir(0, func(d *dirFacts) { d.Free = leastModels })},
		{"models", warns, "little room", dir(0, func(d *dirFacts) { d.Free = leastModels - 1 })},
		{"models", fine, ": at least 12.3 GB ", dir(0, func(d *dirFacts) { d.Free = -1 })},
		{"temp", warns, "set TMP", dir(1, func(d *dirFacts) { d.Missing = true })},
		{"temp", fine, "/tmp", dir(1, func(d *dirFacts) { d.Free = d.Want })},
		{"temp", warns, "need up to 67.1 MB", dir(1, func(d *dirFacts) { d.Free = d.Want - 1 })},
		{"temp", fails, "need up to 67.1 MB", noModel(dir(1, func(d *dirFacts) { d.Free = d.Want - 1 }))},
		{"temp", fails, "read-only", noModel(dir(1, func(d *dirFacts) { d.Write = syscall.EROFS }))},
		{"kv-disk", fails, "give --kv-disk another directory", dir(2, func(d *dirFacts) { d.Write = syscall.EACCES })},
		{"kv-disk", fine, "19.0 GB, 1.0 GB free", dir(2, func(d *dirFacts) { d.Missing, d.Bytes, d.Free = false, 19e9, 1e9 })},
		{"kv-disk", warns, "can't hold 20.0 GB", dir(2, func(d *dirFacts) { d.Missing, d.Bytes, d.Free = false, 19e9, 1e9-1 })},
	})
}

func TestDoctorLimits(t *testing.T) {
	const need = 8192 + 16 + spareFiles
	year := func(n int) func(*doctorFacts) {
		return func(f *doctorFacts) { f.Clock.Now = time.Date(n, 6, 1, 0, 0, 0, 0, time.UTC) }
	}
	refused := &net.OpError{Op: "listen", Err: os.NewSyscallError("bind", syscall.EACCES)}
	judged(t, []doctorCase{
		{"open files", fine, "524288", func(f *doctorFacts) { f.Files.Limit = need }},
		{"open files", warns, "ulimit -n 8272, LimitNOFILE= in systemd, or --ulimit nofile= in Docker; or give serve --max-conns 8191", func(f *doctorFacts) { f.Files.Limit = need - 1 }},
		{"open files", warns, "--max-conns 1", func(f *doctorFacts) { f.Files.Limit = 16 + spareFiles + 1 }},
		{"open files", warns, "in Docker", func(f *doctorFacts) { f.Files.Limit = leastFiles }},
		{"open files", fails, "serve can't open its files", func(f *doctorFacts) { f.Files.Limit = leastFiles - 1 }},
		{"open files", fine, "no limit", func(f *doctorFacts) { f.Files.Limit = 1<<63 - 1 }},

		{"clock", fine, "synchronised", func(f *doctorFacts) { f.Clock.Step = coarseClock }},
		{"clock", warns, "--itl-target 0", func(f *doctorFacts) { f.Clock.Step = coarseClock + 1 }},
		{"clock", fails, "stands still", func(f *doctorFacts) { f.Clock.Step = 0 }},
		{"clock", warns, "set the clock", year(2025)},
		{"clock", fine, "2026-06-01", year(2026)},
		{"clock", fine, "2099-06-01", year(2099)},
		{"clock", warns, "set the clock", year(2100)},
		{"clock", fine, "not known to be synchronised", func(f *doctorFacts) { f.Clock.Sync = "unknown" }},

		{"port", fails, "in use by nginx (process 7)", func(f *doctorFacts) { f.Ports[0].Err, f.Ports[0].Holder = syscall.EADDRINUSE, "nginx (process 7)" }},
		{"port", warns, "that this user may not see", func(f *doctorFacts) { f.Ports[1].Err = syscall.EADDRINUSE }},
		{"port", fails, "bind: permission denied", func(f *doctorFacts) { f.Ports[0].Err = refused }},
	})
}

// TestDoctorSelfTest checks that wrong results choose the next path, and that none is left at the end.
func TestDoctorSelfTest(t *testing.T) {
	wrong := errors.New("cpu: dot: lane 0")
	for _, tc := range []struct {
		forced string
		tests  []error
		level  severity
		want   string
	}{
		{"", []error{nil, nil}, fine, "avx2, the fastest;"},
		{"", []error{nil, wrong}, warns, "portable, the fastest without wrong results"},
		{"avx2", []error{nil, wrong}, fails, "avx2, as COPPICE_CPU says"},
		{"portable", []error{nil, wrong}, fine, "portable, as COPPICE_CPU says"},
		{"", []error{wrong, nil}, fine, "avx2, the fastest;"},
		{"", []error{wrong, wrong}, fails, "none;"},
	} {
		facts := healthy()
		facts.CPU.Forced, facts.CPU.Tests = tc.forced, tc.tests
		if f := facts.CPU.judgeKernels(); f.Level != tc.level || !strings.HasPrefix(f.Found, tc.want) {
			t.Errorf("%q, %v: %+v", tc.forced, tc.tests, f)
		}
		wrongs := 0
		for _, f := range facts.CPU.judge() {
			if f.Check == "self-test" && f.Level == warns && strings.Contains(f.Found, "wrong results: dot: lane 0") {
				wrongs++
			}
		}
		want := 0
		for _, err := range tc.tests {
			if err != nil {
				want++
			}
		}
		if wrongs != want {
			t.Errorf("%v: %d paths with wrong results, want %d", tc.tests, wrongs, want)
		}
	}
}
