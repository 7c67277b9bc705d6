// Package lint holds the rules of the source tree as tests. It has no other code and changes nothing;
// run it with `go test ./internal/lint`.
//
// The table of packages in ARCHITECTURE.md is one of its inputs: a package may import only the
// packages in its row, and a package of ring core may not start goroutines or read a clock. Other
// tests bound the sizes of files, functions and structs, check that the targets of links and the files
// named in comments exist, and find exported names that are not used.
package lint
