package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/engine/cpu"
)

// Thresholds of findings.
const (
	leastMemory = 256 << 20             // bytes left; the Go heap, buffers and a generated model
	leastModels = 1e9                   // bytes free for models: a small one of four bits a weight
	leastFiles  = 16                    // 10 are open at the start
	coarseClock = time.Millisecond      // steps are sized by their times, from a few milliseconds on
	firstYear   = 2026                  // earlier ones are of a clock that was never set
	lastYear    = 2100                  //
	unlimited   = uint64(1<<63 - 1<<10) // RLIM_INFINITY, of which some systems have 63 bits
)

// noted makes a finding that needs no action.
func noted(check, format string, args ...any) finding {
	return finding{Check: check, Found: fmt.Sprintf(format, args...), Level: fine}
}

// but makes the finding one that needs an action.
func (f finding) but(l severity, problem, do string) finding {
	f.Level, f.Problem, f.Do = l, problem, do
	return f
}

// judge turns the facts into findings. It reads nothing else.
func (f *doctorFacts) judge() []finding {
	found := []finding{noted("version", "coppice %s, %s, %s", f.Version, f.Go, f.Target), f.System.judge()}
	found = append(found, f.CPU.judge()...)
	found = append(found, f.judgeMemory(), f.judgeLoad())
	found = append(found, f.GPU.judge()...)
	for i := range f.Dirs {
		found = append(found, f.Dirs[i].judge(f.Load.Model != ""))
	}
	found = append(found, f.Files.judge(), f.Clock.judge())
	for i := range f.Ports {
		found = append(found, f.Ports[i].judge())
	}
	return found
}

func (f systemFacts) judge() finding {
	text := f.Name
	if f.Kernel != "" {
		text += ", kernel " + f.Kernel
	}
	if f.Container != "" {
		text += ", in " + f.Container
	}
	return noted("system", "%s", text)
}

// judge returns the findings on the processor, its features, the chosen path and each self-test.
func (f *cpuFacts) judge() []finding {
	about := cmp.Or(f.Brand, f.Arch+" of unknown brand")
	if f.Cores > 0 {
		about += ", " + counted(f.Cores, "core")
	}
	found := []finding{
		noted("cpu", "%s, %s, %s", about, counted(f.Usable, "processor"), counted(f.Threads, "compute thread")),
		noted("features", "%s", cmp.Or(strings.Join(f.Features, " "), "none that kernels use")),
		f.judgeKernels(),
	}
	for i, isa := range f.ISAs {
		result := noted("self-test", "%s: the kernels give the right bits", isa)
		if err := f.Tests[i]; err != nil {
			result = noted("self-test", "%s: wrong results: %s", isa, firstOf(err, 3)).but(warns, "this path is not used", reportIt)
		}
		found = append(found, result)
	}
	return found
}

// reportIt is the advice for what should never happen.
const reportIt = "report it with this output, as CONTRIBUTING.md says"

// firstOf returns the texts of the first n errors that err joins, on one line.
func firstOf(err error, n int) string {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	var texts []string
	for _, e := range all[:min(n, len(all))] {
		texts = append(texts, strings.Join(strings.Fields(withoutName(e)), " "))
	}
	if more := len(all) - n; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// judgeKernels returns the finding on the path that the cpu backend takes: the one that COPPICE_CPU
// names, else the fastest whose self-test succeeds.
func (f *cpuFacts) judgeKernels() finding {
	names := texts(f.ISAs, cpu.ISA.String)
	can := "this CPU can run " + strings.Join(names, ", ")
	last := len(f.ISAs) - 1
	best := last
	for best >= 0 && f.Tests[best] != nil {
		best--
	}
	switch at := slices.Index(names, f.Forced); {
	case f.Forced != "" && at < 0:
		return noted("kernels", "%s is %q; %s", cpu.ISAVariable, f.Forced, can).
			but(fails, "no command computes on the CPU", fmt.Sprintf("unset %s, or set it to a path that this CPU can run", cpu.ISAVariable))
	case f.Forced != "" && f.Tests[at] != nil:
		return noted("kernels", "%s, as %s says; %s", f.Forced, cpu.ISAVariable, can).
			but(fails, "its self-test fails, so no command computes on the CPU", "unset "+cpu.ISAVariable+"; "+reportIt)
	case best < 0:
		return noted("kernels", "none; %s", can).but(fails, "every path fails its self-test", "test the machine's memory and CPU; "+reportIt)
	case f.Forced != "" && at < best:
		return noted("kernels", "%s, as %s says; %s", f.Forced, cpu.ISAVariable, can).
			but(warns, fmt.Sprintf("%s gives the same bits sooner", names[best]), "unset "+cpu.ISAVariable)
	case f.Forced != "" && at == best:
		return noted("kernels", "%s, as %s says; %s", f.Forced, cpu.ISAVariable, can)
	case best < last:
		return noted("kernels", "%s, the fastest without wrong results; %s", names[best], can).but(warns, "a faster path is left out", reportIt)
	case f.ISAs[best] != cpu.Portable:
		return noted("kernels", "%s, the fastest; %s", names[best], can)
	case f.Arch == "amd64":
		return noted("kernels", "%s; this CPU has no AVX2 with FMA", names[best]).
			but(warns, "models run many times slower than with AVX2", "take a small model, or another CPU")
	default:
		return noted("kernels", "%s; there are no kernels for %s", names[best], f.Arch).
			but(warns, "models run many times slower than on x86 with AVX2", "take a small model")
	}
}

// judgeMemory returns the finding on the machine's memory and its limit.
func (f *doctorFacts) judgeMemory() finding {
	m := f.Memory
	if m.most() == 0 {
		return noted("memory", "unknown on this system; models of up to %s are taken", decimalBytes(unknownMemory))
	}
	text := decimalBytes(m.Total)
	if m.Available > 0 {
		text += ", " + decimalBytes(m.Available) + " available"
	}
	if m.Limit > 0 && m.most() == m.Limit {
		text += fmt.Sprintf("; limit %s, %s used (%s)", decimalBytes(m.Limit), decimalBytes(m.Used), m.Group)
	} else {
		text += "; no lower limit"
	}
	if free := m.free(); free > 0 && free < leastMemory {
		return noted("memory", "%s", text).but(warns, decimalBytes(free)+" can be had", "end other processes, or raise the limit")
	}
	return noted("memory", "%s", text)
}

// judgeLoad returns the finding on what serve would load.
func (f *doctorFacts) judgeLoad() finding {
	l, free := &f.Load, f.Memory.free()
	switch {
	case l.Silent:
		return noted("serve", "no answer from the cache of models").but(fails, "serve waits for it without --model", "check how it is mounted, or "+otherCache)
	case l.Model == "":
		return noted("serve", "the speaking model: none of the cache fits; for a real one: coppice pull NAME")
	}
	found := noted("serve", "%s: %s, and up to %s of KV", l.Model, decimalBytes(l.WeightBytes), decimalBytes(l.KVBytes))
	fits := int64(0)
	if perToken := l.KVBytes / int64(l.KVTokens); perToken > 0 {
		fits = (free - l.WeightBytes) * 9 / 10 / perToken &^ 1023
	}
	switch {
	case free == 0 || l.WeightBytes+l.KVBytes <= free:
		return found
	case l.WeightBytes > free:
		return found.but(fails, decimalBytes(free)+" of memory can be had", "end other processes, raise the limit, or give --model a smaller one")
	case fits < 1024:
		return found.but(warns, decimalBytes(free)+" of memory can be had: the system may end serve", "end other processes, or raise the limit")
	}
	return found.but(warns, decimalBytes(free)+" of memory can be had: the system may end serve when the pool is full",
		fmt.Sprintf("give serve --kv-tokens %d, or a smaller --kv-type", fits))
}

// judge returns the findings on the driver and each GPU.
func (f *gpuFacts) judge() []finding {
	driver := "NVIDIA driver"
	if f.Kernel != "" {
		driver += " " + f.Kernel
	}
	switch {
	case f.Silent:
		return []finding{noted("gpu", "%s", driver).but(warns, "it does not answer", "restart the machine; --backend cpu needs no GPU")}
	case f.Err != nil && f.Kernel == "":
		return []finding{noted("gpu", "no NVIDIA driver; --backend cpu needs none")}
	case f.Err != nil:
		return []finding{noted("gpu", "%s", driver).but(warns, "--backend cuda can't use it: "+errIn(f.Err),
			strings.TrimSuffix(remedy(f.Err, "cpu"), ".")+"; a container needs Docker's --gpus all")}
	}
	found := []finding{noted("gpu", "%s, CUDA %d.%d, %s", driver, f.CUDA/1000, f.CUDA%1000/10, counted(len(f.Devices), "device"))}
	for i, d := range f.Devices {
		device := noted(fmt.Sprintf("gpu %d", i), "%s, %s", d.Name, decimalBytes(d.Bytes))
		if d.Err != nil {
			device = device.but(warns, "--backend cuda can't use it: "+errIn(d.Err), cmp.Or(strings.TrimSuffix(remedy(d.Err, "cpu"), "."), "compute with --backend cpu"))
		}
		found = append(found, device)
	}
	return found
}

func (f filesFacts) judge() finding {
	need := f.need()
	switch {
	case f.Limit == 0:
		return noted("open files", "limit unknown on this system; --max-conns %d needs %d", f.Conns, need)
	case f.Limit >= unlimited:
		return noted("open files", "no limit; --max-conns %d needs %d", f.Conns, need)
	}
	found := noted("open files", "%d (hard limit %d); --max-conns %d needs %d", f.Limit, f.Hard, f.Conns, need)
	raise := fmt.Sprintf("ulimit -n %d, LimitNOFILE= in systemd, or --ulimit nofile= in Docker", need)
	switch fewer := int64(f.Limit) - int64(need) + int64(f.Conns); {
	case f.Limit >= need:
		return found
	case f.Limit < leastFiles:
		return found.but(fails, "serve can't open its files", "raise the limit: "+raise)
	case fewer < 1:
		return found.but(warns, "connections will fail", "raise the limit: "+raise)
	default:
		return found.but(warns, "connections will fail", fmt.Sprintf("raise the limit: %s; or give serve --max-conns %d", raise, fewer))
	}
}

func (f clockFacts) judge() finding {
	sync := map[string]string{"yes": "synchronised", "no": "not synchronised"}[f.Sync]
	found := noted("clock", "%s, %s, monotonic in steps of %v", f.Now.UTC().Format("2006-01-02 15:04:05 MST"), cmp.Or(sync, "not known to be synchronised"), f.Step)
	switch year := f.Now.UTC().Year(); {
	case f.Step == 0:
		return found.but(fails, "the monotonic clock stands still, so no timeout ends", "run on another machine or emulator")
	case f.Step > coarseClock:
		return found.but(warns, "too coarse to time steps", "give serve --itl-target 0 and a --step-tokens that suits the machine")
	case year < firstYear || year >= lastYear:
		return found.but(warns, "downloads and TLS refuse certificates at this date", "set the clock")
	case f.Sync == "no":
		return found.but(warns, "times in logs and in shared directories drift", "start a time service, such as chrony or systemd-timesyncd")
	}
	return found
}

func (f portFacts) judge() finding {
	switch {
	case f.Err == nil:
		return noted("port", "%s is free for coppice %s", f.Addr, f.Command)
	case f.Holder != "" || inUse(f.Err):
		do := fmt.Sprintf("give %s an --addr with another port, or end that process", f.Command)
		return noted("port", "%s is in use by %s", f.Addr, cmp.Or(f.Holder, "a process that this user may not see")).
			but(f.Level, fmt.Sprintf("coppice %s can't listen there", f.Command), do)
	}
	err := f.Err
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op.Err
	}
	return noted("port", "%s: %v", f.Addr, err).
		but(f.Level, fmt.Sprintf("coppice %s can't listen there", f.Command), fmt.Sprintf("give %s another --addr, like 127.0.0.1:8080", f.Command))
}
