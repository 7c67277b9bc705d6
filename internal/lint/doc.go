// Package lint holds the rules of the house as tests: which package may import
// which, what core packages never do, what may not be called what, and how long
// a file may grow. It has no code of its own; `go test ./internal/lint` runs it.
// The reasons are in ARCHITECTURE.md.
package lint
