package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// made makes all files of a release of small texts in place of binaries, in a directory, and returns it.
func made(t *testing.T, key ed25519.PrivateKey) *release {
	t.Helper()
	work := t.TempDir()
	r := &release{version: "v0.1.0-rc.1", commit: strings.Repeat("ab", 20), time: time.Unix(1_700_000_000, 0).UTC(), source: filepath.Join("..", ".."), out: t.TempDir(), work: t.TempDir(),
		platforms: platforms, url: "https://example.org/d", maintainer: "M <m@example.org>", binaries: map[string]string{},
		modules: []module{{path: "example.org/m", version: "v1.2.3", sum: "h1:" + base64.StdEncoding.EncodeToString(make([]byte, 32)), licence: "MIT", texts: []string{"the licence of m"}}},
		files:   map[string][]byte{"LICENSE": []byte("licence"), "CHANGELOG.md": []byte("changes"), "coppice.json": []byte("{}"), "coppice.service": []byte("[Unit]\n"), "coppice.socket": []byte("[Socket]\n"), "completions/coppice.bash": []byte("bash"), "completions/_coppice": []byte("zsh"), "completions/coppice.fish": []byte("fish"), "man/man1/coppice.1": []byte(".TH")}}
	r.files["THIRD-PARTY-LICENCES.txt"] = r.licences()
	for _, p := range platforms {
		r.binaries[p] = filepath.Join(work, strings.ReplaceAll(p, "/", "_"))
		if err := os.WriteFile(r.binaries[p], []byte("program of "+p), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{r.archives(t.Context()), r.packages(t.Context()), r.images(t.Context()), r.formula(t.Context()), r.sbom(t.Context()), r.kustomize(t.Context()), r.attest(key)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// TestSameBytes checks that the same inputs make the same files in other directories, and that another commit changes them.
func TestSameBytes(t *testing.T) {
	one, two := made(t, nil), made(t, nil)
	read := func(r *release) string {
		text, err := os.ReadFile(filepath.Join(r.out, "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	a, b := read(one), read(two)
	if a != b {
		t.Errorf("first\n%sthen\n%s", a, b)
	}
	for _, want := range []string{"coppice_linux_amd64.tar.gz", "coppice_darwin_arm64.tar.gz", "coppice_windows_amd64.zip", "coppice_0.1.0~rc.1_arm64.deb", "coppice_oci.tar", "coppice.rb", "coppice.cdx.json", "provenance.intoto.json", "coppice_kustomize.tar.gz"} {
		if !strings.Contains(a, "  "+want+"\n") {
			t.Errorf("no %s in\n%s", want, a)
		}
	}
}

// TestDebian lets dpkg-deb read the package.
func TestDebian(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("needs dpkg-deb")
	}
	r := made(t, nil)
	file := filepath.Join(r.out, "coppice_0.1.0~rc.1_amd64.deb")
	if fields := must(t, "dpkg-deb", "-f", file); !strings.Contains(fields, "Version: 0.1.0~rc.1\nArchitecture: amd64\nMaintainer: M <m@example.org>\n") {
		t.Errorf("fields: %s", fields)
	}
	list := must(t, "dpkg-deb", "-c", file)
	for _, want := range []string{"-rwxr-xr-x root/root ", " ./usr/bin/coppice\n", " ./etc/coppice/coppice.json\n", " ./usr/share/man/man1/coppice.1.gz\n", " ./usr/lib/systemd/system/coppice.service\n", " ./usr/lib/systemd/system/coppice.socket\n", "2023-11-14 "} {
		if !strings.Contains(list, want) {
			t.Errorf("no %q in\n%s", want, list)
		}
	}
	at := t.TempDir()
	must(t, "dpkg-deb", "-R", file, at)
	check := exec.Command("md5sum", "-c", "DEBIAN/md5sums")
	check.Dir = at
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	for _, older := range []string{"0.1.0~rc.0", "0.0.9"} {
		must(t, "dpkg", "--compare-versions", older, "lt", r.debVersion())
	}
	must(t, "dpkg", "--compare-versions", r.debVersion(), "lt", "0.1.0")
}

// TestSocketUnit checks that the socket is at the address of the configuration, so that enabling it changes no client.
func TestSocketUnit(t *testing.T) {
	unit, err := os.ReadFile(filepath.Join("files", "coppice.socket"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("files", "coppice.json"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct{ Addr string }
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	if config.Addr == "" || !strings.Contains(string(unit), "\nListenStream="+config.Addr+"\n") {
		t.Errorf("the configuration has %q, the unit\n%s", config.Addr, unit)
	}
}

// TestSigned checks the signatures by the public key, and that the statement names each file with its sum.
func TestSigned(t *testing.T) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}), 0o600); err != nil {
		t.Fatal(err)
	}
	read, err := readKey(path)
	if err != nil || !read.Equal(key) {
		t.Fatalf("read %v, %v", read, err)
	}
	r := made(t, read)
	file := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(r.out, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	public := key.Public().(ed25519.PublicKey)
	sums := file("SHA256SUMS")
	if !ed25519.Verify(public, sums, file("SHA256SUMS.sig")) || ed25519.Verify(public, append(sums, ' '), file("SHA256SUMS.sig")) {
		t.Error("the signature of SHA256SUMS is not that of its bytes")
	}
	var envelope struct {
		PayloadType string `json:"payloadType"`
		Payload     []byte `json:"payload"`
		Signatures  []struct {
			Sig []byte `json:"sig"`
		} `json:"signatures"`
	}
	if err := json.Unmarshal(file("provenance.intoto.jsonl"), &envelope); err != nil {
		t.Fatal(err)
	}
	if signed := fmt.Sprintf("DSSEv1 28 application/vnd.in-toto+json %d %s", len(envelope.Payload), envelope.Payload); !ed25519.Verify(public, []byte(signed), envelope.Signatures[0].Sig) {
		t.Error("the envelope's signature is wrong")
	}
	var statement struct {
		Subject []descriptor `json:"subject"`
	}
	if err := json.Unmarshal(envelope.Payload, &statement); err != nil || len(statement.Subject) < 9 {
		t.Fatalf("%d subjects, %v", len(statement.Subject), err)
	}
	for _, s := range statement.Subject {
		if !strings.Contains(string(sums), s.Digest["sha256"]+"  "+s.Name+"\n") {
			t.Errorf("%s %v is not in SHA256SUMS", s.Name, s.Digest)
		}
	}
	if _, err := readKey(filepath.Join(r.out, "SHA256SUMS")); err == nil || !strings.Contains(err.Error(), "no PEM file") {
		t.Errorf("a file without a key: %v", err)
	}
}

// TestSBOM reads the SBOM back.
func TestSBOM(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(made(t, nil).out, "coppice.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var b cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(text), cdx.BOMFileFormatJSON).Decode(&b); err != nil {
		t.Fatal(err)
	}
	if c := *b.Components; len(c) != 1 || c[0].PackageURL != "pkg:golang/example.org/m@v1.2.3" || (*c[0].Licenses)[0].License.ID != "MIT" || b.Metadata.Timestamp != "2023-11-14T22:13:20Z" {
		t.Errorf("components %+v of %s", c, b.Metadata.Timestamp)
	}
}

// TestFormula checks that the formula has the address and sum of each archive that Homebrew's systems take.
func TestFormula(t *testing.T) {
	r := made(t, nil)
	text, err := os.ReadFile(filepath.Join(r.out, "coppice.rb"))
	if err != nil {
		t.Fatal(err)
	}
	sums, err := r.sums()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"coppice_darwin_amd64.tar.gz", "coppice_darwin_arm64.tar.gz", "coppice_linux_amd64.tar.gz", "coppice_linux_arm64.tar.gz"} {
		if want := fmt.Sprintf("      url \"https://example.org/d/v0.1.0-rc.1/%s\"\n      sha256 \"%s\"\n", name, sums[name]); !strings.Contains(string(text), want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if opened, ended := strings.Count(string(text), " do\n")+strings.Count(string(text), "def ")+1, len(slices.DeleteFunc(strings.Fields(string(text)), func(w string) bool { return w != "end" })); opened != ended {
		t.Errorf("%d blocks and %d ends in\n%s", opened, ended, text)
	}
}

func TestLicenceOf(t *testing.T) {
	for text, want := range map[string]string{
		"Apache License\n   Version 2.0, January 2004":                                    "Apache-2.0",
		"Permission is hereby granted, free of charge, to any person":                     "MIT",
		"Redistribution and use in source and binary forms, with ... Neither the name of": "BSD-3-Clause",
		"Redistribution and use in source and binary forms, with":                         "BSD-2-Clause",
		"GNU GENERAL PUBLIC LICENSE Version 3":                                            "",
		"GNU AFFERO GENERAL PUBLIC LICENSE":                                               "",
		"":                                                                                "",
	} {
		if got := licenceOf(text); got != want {
			t.Errorf("%.40q: %q, want %q", text, got, want)
		}
	}
}

func TestVersions(t *testing.T) {
	for _, v := range []string{"v0.1.0", "v0.1.0-snapshot", "v10.20.30-rc.1"} {
		if !versionForm.MatchString(v) {
			t.Errorf("%s is refused", v)
		}
	}
	for _, v := range []string{"", "0.1.0", "v0.1", "v0.1.0-", "v0.1.0+x", "v0.1.0 -X main.x=1", "v0.1.0-../x"} {
		if versionForm.MatchString(v) {
			t.Errorf("%q is taken", v)
		}
	}
}
