package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/md5"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// packages writes a Debian package for each Linux. Its form is that of deb(5): an ar file with the format's version, the
// control files and the data. That is less than a library for several forms of packages would draw.
func (r *release) packages(context.Context) error {
	for _, p := range r.platforms {
		arch, ok := strings.CutPrefix(p, "linux/")
		if !ok {
			continue
		}
		program, err := os.ReadFile(r.binaries[p])
		if err != nil {
			return err
		}
		data, err := r.debian(arch, program)
		if err != nil {
			return err
		}
		if err := r.write(fmt.Sprintf("coppice_%s_%s.deb", r.debVersion(), arch), data); err != nil {
			return err
		}
	}
	return nil
}

// debVersion returns the version in Debian's form: a tilde sorts before the end, as a pre-release has to.
func (r *release) debVersion() string {
	return strings.Replace(strings.TrimPrefix(r.version, "v"), "-", "~", 1)
}

// postinst makes systemd read a new unit. It starts nothing: the unit listens on a port, which the administrator decides.
// An upgrade restarts a unit that runs. All scripts leave systemd alone where dpkg installs into another root.
const postinst = `#!/bin/sh
set -e
if [ "$1" = configure ] && [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload >/dev/null || true
	[ -z "$2" ] || systemctl try-restart coppice.service >/dev/null || true
fi
`

const prerm = `#!/bin/sh
set -e
if [ "$1" = remove ] && [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
	systemctl disable --now coppice.socket coppice.service >/dev/null 2>&1 || true
fi
`

const postrm = `#!/bin/sh
set -e
if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload >/dev/null || true
fi
if [ "$1" = purge ]; then
	for dir in lib/private/coppice lib/coppice cache/private/coppice cache/coppice; do
		rm -rf "$DPKG_ROOT/var/$dir"
	done
	rmdir "$DPKG_ROOT/etc/coppice" 2>/dev/null || true
fi
`

func (r *release) debian(arch string, program []byte) ([]byte, error) {
	files := map[string]entry{
		"usr/bin/coppice":                                  {mode: 0o755, data: program},
		"etc/coppice/coppice.json":                         {data: r.files["coppice.json"]},
		"usr/lib/systemd/system/coppice.service":           {data: r.files["coppice.service"]},
		"usr/lib/systemd/system/coppice.socket":            {data: r.files["coppice.socket"]},
		"usr/share/doc/coppice/copyright":                  {data: r.copyright()},
		"usr/share/bash-completion/completions/coppice":    {data: r.files["completions/coppice.bash"]},
		"usr/share/zsh/vendor-completions/_coppice":        {data: r.files["completions/_coppice"]},
		"usr/share/fish/vendor_completions.d/coppice.fish": {data: r.files["completions/coppice.fish"]},
	}
	compressed := map[string][]byte{"usr/share/doc/coppice/changelog.gz": r.files["CHANGELOG.md"]}
	for name, data := range r.files {
		if strings.HasPrefix(name, "man/") {
			compressed["usr/share/"+name+".gz"] = data
		}
	}
	for name, data := range compressed {
		var b bytes.Buffer
		z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
		z.Write(data)
		if err := z.Close(); err != nil {
			return nil, err
		}
		files[name] = entry{data: b.Bytes()}
	}
	dirs := map[string]bool{}
	var sums strings.Builder
	size := 0
	var data []entry
	for _, name := range slices.Sorted(maps.Keys(files)) {
		var up []string
		for dir := path.Dir(name); dir != "." && !dirs[dir]; dir = path.Dir(dir) {
			dirs[dir] = true
			up = append(up, dir)
		}
		for _, dir := range slices.Backward(up) {
			data = append(data, entry{name: "./" + dir + "/", mode: 0o755})
		}
		e := files[name]
		if e.mode == 0 {
			e.mode = 0o644
		}
		e.name = "./" + name
		data = append(data, e)
		size += (len(e.data) + 1023) / 1024
		if name != "etc/coppice/coppice.json" {
			fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(e.data), name)
		}
	}
	control := fmt.Sprintf(`Package: coppice
Version: %s
Architecture: %s
Maintainer: %s
Installed-Size: %d
Recommends: ca-certificates
Section: net
Priority: optional
Homepage: https://github.com/coppice-llm/coppice
Description: inference server and scheduler for language models
 Serves models over the APIs of OpenAI, Anthropic and Ollama. Requests that
 share a prefix share its KV cache. Also routes requests to a fleet of servers.
`, r.debVersion(), arch, r.maintainer, size)
	controls := []entry{{name: "./control", mode: 0o644, data: []byte(control)}, {name: "./conffiles", mode: 0o644, data: []byte("/etc/coppice/coppice.json\n")},
		{name: "./md5sums", mode: 0o644, data: []byte(sums.String())}, {name: "./postinst", mode: 0o755, data: []byte(postinst)},
		{name: "./prerm", mode: 0o755, data: []byte(prerm)}, {name: "./postrm", mode: 0o755, data: []byte(postrm)}}
	controlTar, err := tarred(controls, r.time, true)
	if err != nil {
		return nil, err
	}
	dataTar, err := tarred(data, r.time, true)
	if err != nil {
		return nil, err
	}
	return ar(r.time, []entry{{name: "debian-binary", data: []byte("2.0\n")}, {name: "control.tar.gz", data: controlTar}, {name: "data.tar.gz", data: dataTar}}), nil
}

// copyright returns the file of Debian's policy 12.5: the licence's text, and those of the modules.
func (r *release) copyright() []byte {
	return slices.Concat(r.files["LICENSE"], []byte("\n"), r.files["THIRD-PARTY-LICENCES.txt"])
}

// ar returns an archive in the common form of ar(5).
func ar(at time.Time, entries []entry) []byte {
	var b bytes.Buffer
	b.WriteString("!<arch>\n")
	for _, e := range entries {
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", e.name, at.Unix(), 0, 0, 0o100644, len(e.data))
		b.Write(e.data)
		if len(e.data)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}
