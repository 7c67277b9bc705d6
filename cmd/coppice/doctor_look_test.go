package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/vm"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
)

// TestDoctor runs the command on this machine: with a free port, with one that this process holds, and
// with a tier that can't be made.
func TestDoctor(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HF_HOME", home)
	if err := os.MkdirAll(filepath.Join(home, "hub", "models--a--b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "hub", "models--a--b", "blob"), make([]byte, 12_300), 0o644); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, ok := command(t, "doctor", "--addr", "127.0.0.1:0", "--max-conns", "1")
	if !ok || stderr != "" {
		t.Fatalf("ok %v, printed %q and %s", ok, stderr, stdout)
	}
	for _, want := range []string{"version    coppice devel, go", runtime.GOOS + "/" + runtime.GOARCH, "self-test  portable: the kernels give the right bits",
		filepath.Join(home, "hub") + ": 12.3 kB", os.TempDir(), "127.0.0.1:0 is free for coppice serve", "127.0.0.1:8000", "--max-conns 1 needs 81"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is missing in %s", want, stdout)
		}
	}
	if isas := cpu.ISAs(); !strings.Contains(stdout, "kernels    "+string(isas[len(isas)-1])) && os.Getenv(cpu.ISAVariable) == "" {
		t.Errorf("the fastest path of %v is not in %s", isas, stdout)
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	stdout, stderr, ok = command(t, "doctor", "--json", "--addr", l.Addr().String(), "--kv-share", filepath.Join(home, "hub", "models--a--b", "blob")+":1GiB")
	var got struct {
		Version  string
		Works    bool
		Findings []finding
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || ok || got.Works || got.Version != "devel" {
		t.Fatalf("ok %v, error %v, printed %s", ok, err, stdout)
	}
	if want := "coppice: serve would not work: 2 failed checks\n"; stderr != want {
		t.Errorf("printed %q, want %q", stderr, want)
	}
	failed := map[string]string{}
	for _, f := range got.Findings {
		if f.Level == fails {
			failed[f.Check] = f.Found
		}
	}
	use := " is in use by "
	if runtime.GOOS == "linux" {
		use = fmt.Sprintf("(process %d)", os.Getpid())
	}
	if len(failed) != 2 || !strings.Contains(failed["port"], use) || !strings.Contains(failed["kv-share"], "blob is not a directory") {
		t.Errorf("failed checks are %q", failed)
	}
	refused(t, []string{"want 0 (any free port) to 65535"}, "doctor", "--addr", ":65536")
	refused(t, []string{"coppice doctor names the process"}, "serve", "--addr", l.Addr().String())
	refused(t, []string{"coppice doctor names the process"}, "route", "--addr", l.Addr().String(), "--worker", "http://127.0.0.1:1")
}

// TestDoctorForced checks that a path that does not exist is found, from the environment.
func TestDoctorForced(t *testing.T) {
	cmd := exec.Command(os.Args[0], "doctor")
	cmd.Env = append(os.Environ(), "COPPICE_TEST_MAIN=1", "COPPICE_CPU=sse9", "COPPICE_ADDR=127.0.0.1:0")
	out, err := cmd.Output()
	if failed, is := err.(*exec.ExitError); !is || failed.ExitCode() != 1 {
		t.Fatalf("ended with %v", err)
	}
	for _, want := range []string{`COPPICE_CPU is "sse9"`, "unset COPPICE_CPU", "127.0.0.1:0 is free for coppice serve"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is missing in %s", want, out)
		}
	}
}

// TestDoctorFlags checks that flags that serve has too have the same defaults, bounds and variables.
func TestDoctorFlags(t *testing.T) {
	of := reflect.TypeFor[serveCmd]()
	for field := range reflect.TypeFor[doctorCmd]().Fields() {
		if field.Name == "JSON" {
			continue
		}
		there, ok := of.FieldByName(field.Name)
		if !ok || there.Type != field.Type {
			t.Errorf("serve has no flag %s of this type", field.Name)
			continue
		}
		for _, key := range []string{"name", "default", "min", "max", "placeholder"} {
			if got, want := field.Tag.Get(key), there.Tag.Get(key); got != want {
				t.Errorf("%s of %s is %q, serve's is %q", key, field.Name, got, want)
			}
		}
		name := there.Tag.Get("name")
		if name == "" {
			name = strings.ToLower(field.Name)
		}
		if got := field.Tag.Get("env"); got != envName(name) {
			t.Errorf("the variable of %s is %q, serve's is %q", field.Name, got, envName(name))
		}
	}
	if addr, _ := reflect.TypeFor[routeCmd]().FieldByName("Addr"); addr.Tag.Get("default") != routeAddr {
		t.Errorf("route listens at %s by default, not at %s", addr.Tag.Get("default"), routeAddr)
	}
}

// TestDoctorDirs looks at directories in each state.
func TestDoctorDirs(t *testing.T) {
	top := t.TempDir()
	full := filepath.Join(top, "full")
	for name, n := range map[string]int{"a": 100, "b/c": 20, "b/d/e": 3} {
		path := filepath.Join(full, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, n), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	look := func(use dirUse, path string) dirFacts { return lookAtDir(dirFacts{Use: use, Path: path}) }
	if d := look(forModels, full); d.Err != nil || d.Write != nil || d.Missing || d.Bytes != 123 || d.Partial {
		t.Errorf("%+v", d)
	}
	if d := look(forTemp, full); d.Err != nil || d.Bytes != 0 {
		t.Errorf("the size of a temporary directory was counted: %+v", d)
	}
	if d := look(forTier, filepath.Join(top, "x", "y")); d.Err != nil || d.Write != nil || !d.Missing || (d.Free <= 0) != (freeBytes(top) <= 0) {
		t.Errorf("%+v", d)
	}
	if d := look(forTier, filepath.Join(full, "a", "y")); d.Err == nil || !strings.Contains(d.Err.Error(), "not a directory") {
		t.Errorf("below a file: %+v", d)
	}
	if d := look(forTier, filepath.Join(full, "a")); d.Err == nil || !strings.Contains(d.Err.Error(), "not a directory") {
		t.Errorf("a file: %+v", d)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if n, partial := sizeOf(ended, full); n != 0 || !partial {
		t.Errorf("%d bytes counted after the end, partial %v", n, partial)
	}
	if n, partial := sizeOf(t.Context(), filepath.Join(top, "x")); n != 0 || !partial {
		t.Errorf("%d bytes in a directory that is not there, partial %v", n, partial)
	}
	link := filepath.Join(top, "link")
	if err := os.Symlink(filepath.Join(top, "gone"), link); err != nil {
		t.Skip("this system makes no links: ", err)
	}
	if err := os.Symlink(filepath.Join(full, "a"), filepath.Join(full, "snapshot")); err != nil {
		t.Fatal(err)
	}
	if n, partial := sizeOf(t.Context(), full); n != 123 || partial {
		t.Errorf("with a link to a file: %d bytes, partial %v", n, partial)
	}
	if d := look(forModels, filepath.Join(link, "hub")); d.Err == nil || !strings.Contains(d.Err.Error(), "link") {
		t.Errorf("a link to nothing: %+v", d)
	}
}

// TestDoctorClosedDirs looks at directories that this user may not read or write.
func TestDoctorClosedDirs(t *testing.T) {
	if runtime.GOOS == "windows" || os.Geteuid() == 0 {
		t.Skip("this user may read and write every directory")
	}
	dir := t.TempDir()
	defer os.Chmod(dir, 0o755)
	for mode, want := range map[os.FileMode]string{0o555: "write", 0o333: "read"} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		d := lookAtDir(dirFacts{Use: forModels, Path: dir})
		if got := map[bool]string{true: "write"}[d.Write != nil] + map[bool]string{true: "read"}[d.Err != nil]; got != want {
			t.Errorf("mode %o: %+v", mode, d)
		}
	}
}

// TestDoctorLate checks that a file system that never answers is reported, and that a result that
// is there is taken even if the time is over.
func TestDoctorLate(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	hangs := begin(ctx, func() string { <-release; return "" }, "late")
	done := make(chan struct{})
	quick := begin(ctx, func() string { defer close(done); return "here" }, "late")
	if got := quick(); got != "here" {
		t.Errorf("the result is %q", got)
	}
	<-done
	cancel()
	if got := hangs(); got != "late" {
		t.Errorf("the result of what hangs is %q", got)
	}
	close(release)
}

// TestDoctorSystem reads a made Linux system.
func TestDoctorSystem(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("container", "")
	os.Unsetenv("container")
	base := map[string]string{"etc/os-release": "ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n", "proc/sys/kernel/osrelease": "6.1.0\n"}
	for file, want := range map[string]string{"": "", ".dockerenv": "Docker", "run/.containerenv": "Podman", "proc/1/cgroup": "Kubernetes"} {
		root := files(base)
		if file != "" {
			root[file] = files(map[string]string{file: "0::/kubepods/x\n"})[file]
		}
		if got := lookAtSystem(root); got != (systemFacts{"Debian GNU/Linux 12", "6.1.0", want}) {
			t.Errorf("with %q: %+v", file, got)
		}
	}
	if got := lookAtSystem(files(nil)); got.Name != runtime.GOOS {
		t.Errorf("%+v", got)
	}
	version := func(text string) string {
		return nvidiaVersion(files(map[string]string{"proc/driver/nvidia/version": text}))
	}
	if got := version("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version:  gcc 12\n"); got != "535.104.05" {
		t.Errorf("the driver is %q", got)
	}
	if got := version("no number"); got != "of unknown version" {
		t.Errorf("the driver is %q", got)
	}
	if got := nvidiaVersion(files(nil)); got != "" {
		t.Errorf("the driver is %q", got)
	}
}

// TestDoctorARM reads made files of Linux systems on arm64.
func TestDoctorARM(t *testing.T) {
	core := func(implementer, part string) string {
		return "processor\t: 0\nFeatures\t: fp asimd evtstrm asimdhp asimddp i8mm\nCPU implementer\t: " + implementer + "\nCPU variant\t: 0x4\nCPU part\t: " + part + "\n\n"
	}
	for _, tc := range []struct{ info, board, brand, features string }{
		{core("0x41", "0xd0b") + core("0x41", "0xd0b"), "Raspberry Pi 5 Model B Rev 1.0\x00", "Cortex-A76 (Raspberry Pi 5 Model B Rev 1.0)", "ASIMD ASIMDHP ASIMDDP I8MM"},
		{core("0x41", "0xd05") + core("0x41", "0xd0b"), "", "Cortex-A55 and Cortex-A76", "ASIMD ASIMDHP ASIMDDP I8MM"},
		{core("0xc0", "0xac4"), "", "implementer 0xc0 part 0xac4", "ASIMD ASIMDHP ASIMDDP I8MM"},
		{"", "", "", "SVE"}, // as it was known before
	} {
		f := cpuFacts{Features: []string{"SVE"}}
		f.lookAtARM(files(map[string]string{"proc/cpuinfo": tc.info, "proc/device-tree/model": tc.board}))
		if f.Brand != tc.brand || strings.Join(f.Features, " ") != tc.features {
			t.Errorf("%q: %+v", tc.info, f)
		}
	}
}

// TestDoctorGPU lists the device of the interpreter, which can run the kernels.
func TestDoctorGPU(t *testing.T) {
	var f gpuFacts
	f.list(vm.New(ptxvm.Config{MemoryBytes: 1 << 20}))
	if f.Err != nil || f.CUDA < 13000 || len(f.Devices) != 1 || f.Devices[0].Name == "" || f.Devices[0].Bytes != 1<<20 || f.Devices[0].Err != nil {
		t.Errorf("%+v", f)
	}
}

// TestDoctorHolder finds the process of a port in made files of a Linux system.
func TestDoctorHolder(t *testing.T) {
	proc := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(proc, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	line := func(n int, port, state string, inode int) string {
		return fmt.Sprintf("%d: 0100007F:%s 00000000:0000 %s 00000000:00000000 00:00000000 00000000 0 0 %d 1 0\n", n, port, state, inode)
	}
	put("net/tcp", "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"+
		line(0, "1F90", "01", 5)+line(1, "1F91", "0A", 6)+line(2, "1F90", "0A", 7))
	for pid, inode := range map[int]int{11: 5, 12: 6, 13: 7} {
		put(filepath.Join(strconv.Itoa(pid), "comm"), fmt.Sprintf("name%d\n", pid))
		fd := filepath.Join(proc, strconv.Itoa(pid), "fd")
		if err := os.Mkdir(fd, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(fmt.Sprintf("socket:[%d]", inode), filepath.Join(fd, "3")); err != nil {
			t.Skip("this system makes no links: ", err)
		}
	}
	for port, want := range map[int]string{8080: "name13 (process 13)", 8081: "name12 (process 12)", 8082: ""} {
		if got := holder(proc, port); got != want {
			t.Errorf("port %d: %q, want %q", port, got, want)
		}
	}
}
