package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var dist = flag.String("dist", "", "directory of a release, to install and run what it has for this machine; Linux, as root")

// needDist returns the directory of -dist, and skips the test without it.
func needDist(t *testing.T) string {
	t.Helper()
	if *dist == "" {
		t.Skip("needs -dist")
	}
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		t.Skip("needs Linux and root")
	}
	return *dist
}

// must runs a command and returns its output.
func must(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// TestDistSums checks each file against SHA256SUMS, and that none is missing there.
func TestDistSums(t *testing.T) {
	dir := needDist(t)
	list, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	r := &release{out: dir}
	sums, err := r.sums()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if sums[name] != sum {
			t.Errorf("%s has the sum %s, want %s", name, sums[name], sum)
		}
		delete(sums, name)
	}
	delete(sums, "SHA256SUMS")
	delete(sums, "SHA256SUMS.sig")
	if len(sums) > 0 {
		t.Errorf("without a line: %v", sums)
	}
}

// server is a coppice serve in a root of its own.
type server struct {
	url string
	cmd *exec.Cmd
	log *bytes.Buffer
}

// start starts a command that changes its root, and waits until the server answers.
func start(t *testing.T, client string, env []string, name string, args ...string) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(stop)
	s := &server{url: "http://" + addr, cmd: exec.CommandContext(ctx, name, args...), log: &bytes.Buffer{}}
	s.cmd.Env = append(env, "COPPICE_ADDR="+addr)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.cmd.Wait() }()
	t.Cleanup(func() { s.cmd.Process.Signal(os.Interrupt); <-ended })
	for exec.CommandContext(ctx, client, "health", "--ready", "--url", s.url).Run() != nil {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the server ended: %v\n%s", err, s.log)
		case <-ctx.Done():
			t.Fatal("the server did not come up")
		case <-time.After(50 * time.Millisecond): // a process says nothing when it is up
		}
	}
	return s
}

// ask asks the server a completion by the client's own command.
func (s *server) ask(t *testing.T, client string) {
	t.Helper()
	cmd := exec.Command(client, "chat", "--url", s.url, "--max-tokens", "8")
	cmd.Stdin = strings.NewReader("What is light?\n")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil || len(strings.TrimSpace(out.String())) < 3 {
		t.Errorf("a completion: %v: %q %q", err, out.String(), errs.String())
	}
}

// TestDistPackage installs an older package into a fresh root, changes its configuration, upgrades it, starts the unit's
// command as another user, asks it, and removes the package.
func TestDistPackage(t *testing.T) {
	dir := needDist(t)
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("needs dpkg")
	}
	found, err := filepath.Glob(filepath.Join(dir, "coppice_*_"+runtime.GOARCH+".deb"))
	if err != nil || len(found) != 1 {
		t.Fatalf("packages %q: %v", found, err)
	}
	root, work := t.TempDir(), t.TempDir()
	for _, d := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"status", "available"} {
		if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg", f), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dpkg := func(args ...string) string {
		return must(t, "dpkg", append([]string{"--root=" + root, "--force-script-chrootless", "--force-confold", "--log=/dev/null"}, args...)...)
	}
	must(t, "dpkg-deb", "-R", found[0], filepath.Join(work, "old"))
	control := filepath.Join(work, "old", "DEBIAN", "control")
	text, err := os.ReadFile(control)
	if err != nil {
		t.Fatal(err)
	}
	version := strings.TrimSpace(must(t, "dpkg-deb", "-f", found[0], "Version"))
	if err := os.WriteFile(control, bytes.Replace(text, []byte("Version: "+version), []byte("Version: 0.0.0~before"), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	must(t, "dpkg-deb", "-Znone", "--root-owner-group", "-b", filepath.Join(work, "old"), filepath.Join(work, "old.deb"))
	dpkg("-i", filepath.Join(work, "old.deb"))
	config := filepath.Join(root, "etc/coppice/coppice.json")
	own := []byte(`{"kv-tokens": 4096, "kv-disk": "/var/cache/coppice/kv:64MiB"}`)
	if err := os.WriteFile(config, own, 0o644); err != nil {
		t.Fatal(err)
	}
	dpkg("-i", found[0])
	if status := dpkg("-s", "coppice"); !strings.Contains(status, "Version: "+version+"\n") || !strings.Contains(status, "install ok installed") {
		t.Errorf("after the upgrade: %s", status)
	}
	if kept, err := os.ReadFile(config); err != nil || !bytes.Equal(kept, own) {
		t.Errorf("the upgrade made the configuration %s: %v", kept, err)
	}
	unit, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system/coppice.service"))
	if err != nil {
		t.Fatal(err)
	}
	_, line, ok := strings.Cut(string(unit), "\nExecStart=")
	line, _, _ = strings.Cut(line, "\n")
	if !ok {
		t.Fatalf("no command in %s", unit)
	}
	// What systemd makes: a directory that the unit's user owns, and one for temporary files.
	for _, d := range []string{"var/cache/coppice", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(root, d), 61184, 61184); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	client := filepath.Join(root, "usr/bin/coppice")
	s := start(t, client, nil, "chroot", append([]string{"--userspec=61184:61184", root}, strings.Fields(line)...)...)
	s.ask(t, client)
	if stored, _ := filepath.Glob(filepath.Join(root, "var/cache/coppice/kv/*")); len(stored) == 0 {
		t.Errorf("the server has no directory of KV; it printed\n%s", s.log)
	}
	dpkg("-r", "coppice")
	if _, err := os.Stat(client); err == nil {
		t.Error("the command is still there")
	}
	if _, err := os.Stat(config); err != nil {
		t.Errorf("removing the package took the configuration: %v", err)
	}
	dpkg("-P", "coppice")
	for _, d := range []string{"etc/coppice", "var/cache/coppice"} {
		if _, err := os.Stat(filepath.Join(root, d)); err == nil {
			t.Errorf("purged, but %s is there", d)
		}
	}
}

// TestDistImage checks the images' form, and runs this machine's under chroot: as its own user, with a root that nothing
// can be written to.
func TestDistImage(t *testing.T) {
	dir := needDist(t)
	at := t.TempDir()
	must(t, "tar", "-xf", filepath.Join(dir, "coppice_oci.tar"), "-C", at)
	index, err := layout.ImageIndexFromPath(at)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range manifest.Manifests {
		img, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		file, err := img.ConfigFile()
		if err != nil || file.Architecture != m.Platform.Architecture || file.Config.User != "65532:65532" || file.Config.Healthcheck == nil {
			t.Fatalf("image of %v: %+v, %v", m.Platform, file, err)
		}
		if m.Platform.Architecture == runtime.GOARCH {
			runImage(t, img, file)
		}
	}
}

func runImage(t *testing.T, img v1.Image, file *v1.ConfigFile) {
	root := t.TempDir()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		r, err := l.Compressed()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("tar", "-xzpf", "-", "--numeric-owner", "-C", root)
		cmd.Stdin = r
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	client := filepath.Join(root, "coppice")
	// The mounts end with the namespace. As a container runtime, it gives a file system in memory for /tmp, and the volume.
	const mounted = `mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && mount -t tmpfs tmpfs "$1/tmp" && mount -t tmpfs -o uid=65532,mode=700 tmpfs "$1/var/lib/coppice" &&
		! touch "$1/x" 2>/dev/null && exec chroot --userspec="$2" "$@"`
	script := strings.Replace(mounted, `"$@"`, `"$1" "${@:3}"`, 1)
	args := append([]string{"-m", "bash", "-c", script, "bash", root, file.Config.User}, append(file.Config.Entrypoint, file.Config.Cmd...)...)
	env := append([]string{"PATH=" + os.Getenv("PATH")}, file.Config.Env[1:]...) // of what mounts; the server looks for no program
	s := start(t, client, env, "unshare", args...)
	s.ask(t, client)
	check := exec.Command("chroot", root, "/coppice", "health")
	check.Env = append(file.Config.Env[:1:1], "COPPICE_ADDR="+strings.TrimPrefix(s.url, "http://"))
	if out, err := check.CombinedOutput(); err != nil || file.Config.Healthcheck.Test[1] != "/coppice" {
		t.Errorf("the health check %q: %v %s", file.Config.Healthcheck.Test, err, out)
	}
}

// TestDistArchive runs the command of this machine's archive, and looks for what belongs there.
func TestDistArchive(t *testing.T) {
	dir := needDist(t)
	data, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("coppice_%s_%s.tar.gz", runtime.GOOS, runtime.GOARCH)))
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	program := filepath.Join(t.TempDir(), "coppice")
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		names[h.Name] = true
		if h.Name == "coppice" {
			text, err := io.ReadAll(r)
			if err == nil {
				err = os.WriteFile(program, text, 0o755)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, want := range []string{"coppice", "LICENSE", "THIRD-PARTY-LICENCES.txt", "completions/coppice.bash", "completions/_coppice", "completions/coppice.fish", "man/man1/coppice-serve.1", "coppice.json"} {
		if !names[want] {
			t.Errorf("the archive has no %s", want)
		}
	}
	out := must(t, program, "version")
	if sum := sha256.Sum256(data); !strings.HasPrefix(out, "coppice v") || strings.Contains(out, "unknown") {
		t.Errorf("archive %s: coppice version prints %s", hex.EncodeToString(sum[:4]), out)
	}
}
