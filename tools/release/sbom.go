package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// sbom writes the list of modules in CycloneDX's form.
func (r *release) sbom(context.Context) error {
	sum := sha256.Sum256([]byte(r.commit + r.version))
	id := sum[:16]
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // a UUID of version 8: RFC 9562, section 5.8
	b := cdx.NewBOM()
	b.SerialNumber = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	self := "pkg:golang/github.com/coppice-llm/coppice@" + r.version
	b.Metadata = &cdx.Metadata{
		Timestamp: r.time.Format(time.RFC3339),
		Component: &cdx.Component{BOMRef: self, Type: cdx.ComponentTypeApplication, Name: "github.com/coppice-llm/coppice", Version: r.version, PackageURL: self,
			Licenses: &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}},
	}
	all, refs := []cdx.Component{}, []string{}
	for _, m := range r.modules {
		ref := "pkg:golang/" + m.path + "@" + m.version
		c := cdx.Component{BOMRef: ref, Type: cdx.ComponentTypeLibrary, Name: m.path, Version: m.version, PackageURL: ref, Scope: cdx.ScopeRequired,
			Licenses: &cdx.Licenses{{License: &cdx.License{ID: m.licence}}}}
		// Go's sum is a SHA-256 of a list of the module's files, not of an archive (golang.org/x/mod/sumdb/dirhash).
		if h1, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.sum, "h1:")); err == nil && len(h1) == sha256.Size {
			c.Properties = &[]cdx.Property{{Name: "coppice:go:h1", Value: hex.EncodeToString(h1)}}
		}
		all, refs = append(all, c), append(refs, ref)
	}
	b.Components = &all
	b.Dependencies = &[]cdx.Dependency{{Ref: self, Dependencies: &refs}}
	var text bytes.Buffer
	if err := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).Encode(b); err != nil {
		return err
	}
	return r.write("coppice.cdx.json", text.Bytes())
}
