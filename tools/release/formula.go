package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// formula writes a Homebrew formula with the archives that were made.
func (r *release) formula(context.Context) error {
	sums, err := r.sums()
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, `class Coppice < Formula
  desc "Inference server and scheduler for language models"
  homepage "https://github.com/coppice-llm/coppice"
  version "%s"
  license "Apache-2.0"

`, strings.TrimPrefix(r.version, "v"))
	for _, system := range [][2]string{{"darwin", "macos"}, {"linux", "linux"}} {
		var inner strings.Builder
		for _, arch := range [][2]string{{"amd64", "intel"}, {"arm64", "arm"}} {
			name := fmt.Sprintf("coppice_%s_%s.tar.gz", system[0], arch[0])
			if sum := sums[name]; sum != "" {
				fmt.Fprintf(&inner, "    on_%s do\n      url \"%s/%s/%s\"\n      sha256 \"%s\"\n    end\n", arch[1], r.url, r.version, name, sum)
			}
		}
		if inner.Len() > 0 {
			fmt.Fprintf(&b, "  on_%s do\n%s  end\n\n", system[1], inner.String())
		}
	}
	b.WriteString(`  def install
    bin.install "coppice"
    man1.install Dir["man/man1/*"]
    bash_completion.install "completions/coppice.bash" => "coppice"
    zsh_completion.install "completions/_coppice"
    fish_completion.install "completions/coppice.fish"
    pkgetc.install "coppice.json"
  end

  service do
    run [opt_bin/"coppice", "serve", "--config", etc/"coppice/coppice.json"]
    keep_alive crashed: true
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/coppice version")
  end
end
`)
	return r.write("coppice.rb", []byte(b.String()))
}

// kustomize writes the kustomization of one node, whose image has the version's tag.
func (r *release) kustomize(context.Context) error {
	dir := filepath.Join(r.source, "tools", "release", "files", "kustomize")
	var entries []entry
	err := fs.WalkDir(os.DirFS(dir), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, p))
		entries = append(entries, entry{name: "kustomize/" + p, mode: 0o644, data: []byte(strings.ReplaceAll(string(data), "VERSION", r.version))})
		return err
	})
	if err != nil {
		return err
	}
	text, err := tarred(entries, r.time, true)
	if err != nil {
		return err
	}
	return r.write("coppice_kustomize.tar.gz", text)
}
