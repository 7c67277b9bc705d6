package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// nobody is the user of the image; it has no name there.
const nobody = 65532

// images writes an OCI layout as a tar file, with an image for each Linux, from scratch.
func (r *release) images(context.Context) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range r.platforms {
		arch, ok := strings.CutPrefix(p, "linux/")
		if !ok {
			continue
		}
		program, err := os.ReadFile(r.binaries[p])
		if err != nil {
			return err
		}
		img, err := r.image(arch, program)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			Platform:    &v1.Platform{OS: "linux", Architecture: arch},
			Annotations: map[string]string{"org.opencontainers.image.ref.name": r.version},
		}})
	}
	if manifest, err := index.IndexManifest(); err != nil || len(manifest.Manifests) == 0 {
		return err
	}
	dir := filepath.Join(r.work, "image")
	if _, err := layout.Write(dir, index); err != nil {
		return err
	}
	var entries []entry
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(p)
		entries = append(entries, entry{name: filepath.ToSlash(rel), mode: 0o644, data: data})
		return err
	})
	if err != nil {
		return err
	}
	text, err := tarred(entries, r.time, false)
	if err != nil {
		return err
	}
	return r.write("coppice_oci.tar", text)
}

// image returns the image of an architecture. Its layers are the certificates, which seldom change, and the program.
func (r *release) image(arch string, program []byte) (v1.Image, error) {
	base := []entry{
		{name: "etc/", mode: 0o755}, {name: "etc/ssl/", mode: 0o755}, {name: "etc/ssl/certs/", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: certificates()},
		{name: "tmp/", mode: 0o1777}, {name: "var/", mode: 0o755}, {name: "var/lib/", mode: 0o755},
		{name: "var/lib/coppice/", mode: 0o700, uid: nobody, gid: nobody},
	}
	top := []entry{{name: "coppice", mode: 0o755, data: program}, {name: "LICENSE", mode: 0o644, data: r.files["LICENSE"]},
		{name: "THIRD-PARTY-LICENCES.txt", mode: 0o644, data: r.files["THIRD-PARTY-LICENCES.txt"]}}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	var added []mutate.Addendum
	for _, entries := range [][]entry{base, top} {
		text, err := tarred(entries, r.time, true)
		if err != nil {
			return nil, err
		}
		plain, err := tarred(entries, r.time, false)
		if err != nil {
			return nil, err
		}
		added = append(added, mutate.Addendum{Layer: layer{static.NewLayer(text, types.OCILayer), plain}, History: v1.History{Created: v1.Time{Time: r.time}, CreatedBy: "tools/release"}})
	}
	img, err := mutate.Append(img, added...)
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Created, file.Architecture, file.OS = v1.Time{Time: r.time}, arch, "linux"
	file.Config = v1.Config{
		User: "65532:65532", WorkingDir: "/var/lib/coppice", Entrypoint: []string{"/coppice"}, Cmd: []string{"serve"},
		Env:          []string{"PATH=/", "COPPICE_ADDR=0.0.0.0:8080", "HF_HOME=/var/lib/coppice/huggingface", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}}, Volumes: map[string]struct{}{"/var/lib/coppice": {}},
		Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "/coppice", "health"}, Interval: 10 * time.Second, Timeout: 5 * time.Second, StartPeriod: 10 * time.Minute, Retries: 3},
		Labels: map[string]string{"org.opencontainers.image.title": "coppice", "org.opencontainers.image.version": r.version, "org.opencontainers.image.revision": r.commit,
			"org.opencontainers.image.source": "https://github.com/coppice-llm/coppice", "org.opencontainers.image.licenses": "Apache-2.0"},
	}
	return mutate.ConfigFile(img, file)
}

// layer is a compressed layer whose DiffID is that of the plain tar file; static takes both for the same.
type layer struct {
	v1.Layer
	plain []byte
}

// DiffID returns the digest of the layer without compression.
func (l layer) DiffID() (v1.Hash, error) {
	h, _, err := v1.SHA256(bytes.NewReader(l.plain))
	return h, err
}

// certificates returns Mozilla's list, of the version in go.mod.
func certificates() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
	}
	return b.Bytes()
}
