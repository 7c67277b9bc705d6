// Package lint holds the rules of the tree as tests. It has no code of its own and
// changes nothing; `go test ./internal/lint` runs it.
//
// The table of packages in ARCHITECTURE.md is one of its inputs: a package imports only
// what its row lists, and a package of ring core starts no goroutine and reads no clock.
// Other tests bound the sizes of files, functions and structs, check that comments and
// links lead to something that exists, and find exported names that nothing uses.
package lint
