// Command release makes the files of a release in a directory:
//
//	go run . v0.1.0                       # all platforms, into dist/v0.1.0
//	go run . -platforms linux/amd64 v0.1.0-snapshot
//	go run . -key key.pem v0.1.0          # signed
//
// They are archives with static binaries, completions, manual pages and licences; Debian packages; an OCI layout; a
// Homebrew formula; a kustomization; an SBOM; a statement of provenance; and SHA256SUMS. The same commit and Go version
// make the same bytes, in any directory: the time of all files is that of the commit, or SOURCE_DATE_EPOCH.
//
// The command needs git and Go, uses no network but for modules, and publishes nothing. docs/releases.md describes the
// files. This installs and runs them, as root:
//
//	go test -count=1 . -dist ../../dist/v0.1.0-snapshot
package main
