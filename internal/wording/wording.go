// Package wording owns how errors of inner packages read outside: it puts the project's name
// where the name of the package was. It never decides which errors leave. Its functions may be
// called from any goroutine.
//
//	wording.Public("scheduler: queue full") // "coppice: queue full"
package wording

import (
	"errors"
	"regexp"
	"slices"
	"strings"
)

// packages are the names that errors of this module begin with; a test of internal/lint
// compares them with the sources.
var packages = strings.Fields(`actors backends blockio bundle card carrier chat cpu cu cuda cudamem cudrv dirmem diskmem dlopen engine events fleet
	gguf gpucheck grammar hostmem hub inspect intake jsonschema kv kvindex local mempool missratio model nats openai ops
	ptxvm radixcache router sampling scheduler server sim sites slotted stub tiering tokenizer view vm wire zmq`)

// Name begins the errors of the module's public packages.
const Name = "coppice: "

var inner = regexp.MustCompile(`(?m)^(?:(?:coppice|` + strings.Join(packages, "|") + `): )+`)

// Public returns the text of an error with Name in place of the names of packages at the
// beginning of each of its lines.
func Public(text string) string { return inner.ReplaceAllLiteralString(text, Name) }

// Knows reports whether Public replaces the name of a package.
func Knows(name string) bool { return slices.Contains(packages, name) }

// Error returns err with the text that Public makes of its own. It wraps err, and errors.Is
// finds it by what Error returned for an error in err's chain. An error that wraps nothing and
// names no package, such as context.Canceled, is returned as it is.
func Error(err error) error {
	if err == nil {
		return nil
	}
	switch e := err.(type) {
	case *public:
		return err
	case interface{ Unwrap() error }, interface{ Unwrap() []error }:
	default:
		if text := e.Error(); Public(text) == text {
			return err
		}
	}
	return &public{err}
}

type public struct{ err error }

func (e *public) Error() string { return Public(e.err.Error()) }

func (e *public) Unwrap() error { return e.err }

// Is compares with a variable that Error made of an inner package's.
func (e *public) Is(target error) bool {
	t, ok := target.(*public)
	return ok && errors.Is(e.err, t.err)
}
