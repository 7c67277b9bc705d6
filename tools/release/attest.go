package main

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
)

// readKey returns the key of a PEM file; nil for no file.
func readKey(path string) (ed25519.PrivateKey, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s is no PEM file; make one by: openssl genpkey -algorithm ed25519", path)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	k, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s has a key of type %T, want Ed25519", path, key)
	}
	return k, nil
}

// hashes and descriptor are parts of in-toto's statement (spec/v1/resource_descriptor.md of in-toto/attestation).
type hashes map[string]string

type descriptor struct {
	Name   string `json:"name,omitempty"`
	URI    string `json:"uri,omitempty"`
	Digest hashes `json:"digest,omitempty"`
}

// attest writes the provenance of all files by SLSA's predicate v1, and SHA256SUMS. With a key it signs both: the
// provenance in a DSSE envelope.
func (r *release) attest(key ed25519.PrivateKey) error {
	sums, err := r.sums()
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(sums))
	var subjects []descriptor
	for _, n := range names {
		subjects = append(subjects, descriptor{Name: n, Digest: hashes{"sha256": sums[n]}})
	}
	source := "git+https://github.com/coppice-llm/coppice"
	statement, err := json.MarshalIndent(map[string]any{
		"_type":         "https://in-toto.io/Statement/v1",
		"subject":       subjects,
		"predicateType": "https://slsa.dev/provenance/v1",
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType":            "https://github.com/coppice-llm/coppice/blob/main/docs/releases.md",
				"externalParameters":   map[string]any{"source": source, "version": r.version, "platforms": r.platforms},
				"internalParameters":   map[string]any{"SOURCE_DATE_EPOCH": r.time.Unix()},
				"resolvedDependencies": []descriptor{{URI: source, Digest: hashes{"gitCommit": r.commit}}, {URI: "pkg:generic/go@" + strings.TrimPrefix(runtime.Version(), "go")}},
			},
			"runDetails": map[string]any{"builder": map[string]any{"id": "https://github.com/coppice-llm/coppice/tree/main/tools/release"}},
		},
	}, "", "  ")
	if err != nil {
		return err
	}
	statement = append(statement, '\n')
	const provenance = "provenance.intoto.json"
	written := map[string][]byte{provenance: statement}
	if key != nil {
		const kind = "application/vnd.in-toto+json"
		// The pre-authentication encoding of DSSE 1.0.2, protocol.md.
		signed := ed25519.Sign(key, fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(kind), kind, len(statement), statement))
		envelope, err := json.Marshal(map[string]any{"payloadType": kind, "payload": base64.StdEncoding.EncodeToString(statement),
			"signatures": []map[string]string{{"sig": base64.StdEncoding.EncodeToString(signed)}}})
		if err != nil {
			return err
		}
		written["provenance.intoto.jsonl"] = append(envelope, '\n')
	}
	for name, data := range written {
		if err := r.write(name, data); err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		sums[name] = hex.EncodeToString(sum[:])
	}
	var list strings.Builder
	for _, n := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(&list, "%s  %s\n", sums[n], n)
	}
	if key != nil {
		if err := r.write("SHA256SUMS.sig", ed25519.Sign(key, []byte(list.String()))); err != nil {
			return err
		}
	}
	return r.write("SHA256SUMS", []byte(list.String()))
}
