package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// platforms are those that a release has binaries for.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64"}

// release is what the files are made from.
type release struct {
	version    string // v0.1.0
	commit     string
	time       time.Time // of the commit; that of all files
	source     string    // root of the repository
	out        string
	work       string // temporary
	platforms  []string
	url        string // where the files of this version will be found
	maintainer string
	binaries   map[string]string // path by platform
	modules    []module
	files      map[string][]byte // texts that several files have: completions, manual pages and so on
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r := &release{binaries: map[string]string{}}
	want := flag.String("platforms", strings.Join(platforms, ","), "platforms to build")
	out := flag.String("out", "", "directory to write, which must not exist; default dist/VERSION in the repository")
	key := flag.String("key", "", "PEM file with an Ed25519 private key, to sign SHA256SUMS and the provenance")
	flag.StringVar(&r.url, "url", "https://github.com/coppice-llm/coppice/releases/download", "address under which VERSION/FILE will be found")
	flag.StringVar(&r.maintainer, "maintainer", "The Coppice project <maintainers@coppice.invalid>", "maintainer of the Debian package")
	flag.Parse()
	r.version, r.platforms = flag.Arg(0), strings.Split(*want, ",")
	err := r.run(ctx, *out, *key)
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

var versionForm = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z]+(\.[0-9A-Za-z]+)*)?$`)

// run makes all files. It writes to a temporary directory first, so that out is complete or absent.
func (r *release) run(ctx context.Context, out, key string) (err error) {
	if flag.NArg() != 1 || !versionForm.MatchString(r.version) {
		return fmt.Errorf("%q is not a version; want one argument like v0.1.0 or v0.1.0-rc.1", flag.Args())
	}
	for _, p := range r.platforms {
		if !slices.Contains(platforms, p) {
			return fmt.Errorf("no platform %q; there are %s", p, strings.Join(platforms, ", "))
		}
	}
	sign, err := readKey(key)
	if err != nil {
		return err
	}
	if err := r.look(ctx); err != nil {
		return err
	}
	if out == "" {
		out = filepath.Join(r.source, "dist", r.version)
	}
	if _, err := os.Lstat(out); err == nil {
		return fmt.Errorf("%s exists already", out)
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	if r.out, err = os.MkdirTemp(filepath.Dir(out), ".release-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.out)
	if r.work, err = os.MkdirTemp("", "coppice-release-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.work)
	for _, step := range []func(context.Context) error{r.build, r.texts, r.archives, r.packages, r.images, r.formula, r.sbom, r.kustomize} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := r.attest(sign); err != nil {
		return err
	}
	if err := os.Chmod(r.out, 0o755); err != nil {
		return err
	}
	return os.Rename(r.out, out)
}

// look finds the repository, its commit and its time.
func (r *release) look(ctx context.Context) error {
	root, err := output(ctx, ".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	r.source = root
	last, err := output(ctx, root, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return err
	}
	var seconds string
	r.commit, seconds, _ = strings.Cut(last, " ")
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds = epoch
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	r.time = time.Unix(unix, 0).UTC()
	changed, err := output(ctx, root, "git", "status", "--porcelain")
	if err == nil && changed != "" && !strings.HasSuffix(r.version, "-snapshot") {
		err = errors.New("the tree has changes; commit them, or end the version in -snapshot")
	}
	return err
}

// build compiles the command for each platform, and for this machine.
func (r *release) build(ctx context.Context) error {
	host := runtime.GOOS + "/" + runtime.GOARCH
	for _, p := range append([]string{host}, r.platforms...) {
		if r.binaries[p] != "" {
			continue
		}
		system, arch, _ := strings.Cut(p, "/")
		path := filepath.Join(r.work, system+"_"+arch, "coppice")
		if system == "windows" {
			path += ".exe"
		}
		flags := fmt.Sprintf("-s -w -buildid= -X main.released=%s -X main.releasedCommit=%s -X main.releasedDate=%s", r.version, r.commit, r.time.Format(time.RFC3339))
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", flags, "-o", path, "./cmd/coppice")
		cmd.Dir, cmd.Stderr = r.source, os.Stderr
		cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off")
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("building for %s: %w", p, err)
		}
		r.binaries[p] = path
		if err := r.addModules(path); err != nil {
			return err
		}
	}
	return r.findLicences(ctx)
}

// texts makes the files that several packages have.
func (r *release) texts(ctx context.Context) error {
	r.files = map[string][]byte{}
	program := r.binaries[runtime.GOOS+"/"+runtime.GOARCH]
	for shell, name := range map[string]string{"bash": "coppice.bash", "zsh": "_coppice", "fish": "coppice.fish"} {
		text, err := output(ctx, r.work, program, "completion", shell)
		if err != nil {
			return err
		}
		r.files["completions/"+name] = []byte(text + "\n")
	}
	pages := filepath.Join(r.work, "man1")
	if _, err := output(ctx, r.work, program, "man", pages); err != nil {
		return err
	}
	names, err := filepath.Glob(filepath.Join(pages, "*.1"))
	if err != nil || len(names) == 0 {
		return fmt.Errorf("no manual pages: %w", err)
	}
	for _, n := range names {
		if r.files["man/man1/"+filepath.Base(n)], err = os.ReadFile(n); err != nil {
			return err
		}
	}
	for from, to := range map[string]string{"LICENSE": "LICENSE", "README.md": "README.md", "CHANGELOG.md": "CHANGELOG.md",
		"tools/release/files/coppice.json": "coppice.json", "tools/release/files/coppice.service": "coppice.service", "tools/release/files/coppice.socket": "coppice.socket"} {
		if r.files[to], err = os.ReadFile(filepath.Join(r.source, from)); err != nil {
			return err
		}
	}
	r.files["THIRD-PARTY-LICENCES.txt"] = r.licences()
	return r.write("THIRD-PARTY-LICENCES.txt", r.files["THIRD-PARTY-LICENCES.txt"])
}

// write writes a file of the release.
func (r *release) write(name string, data []byte) error {
	path := filepath.Join(r.out, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// sums returns the SHA-256 of each file written so far, by name, in hexadecimal.
func (r *release) sums() (map[string]string, error) {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(data)
		sums[e.Name()] = hex.EncodeToString(sum[:])
	}
	return sums, nil
}

// output runs a command and returns what it prints, without the last line break.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "COPPICE_") })
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", filepath.Base(name), strings.Join(args, " "), err)
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}
