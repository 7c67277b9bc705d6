// Package wording owns the text that errors of inner packages have for callers of the public
// packages: it puts the project's name where the name of the inner package was. It never decides
// which errors callers get. Its functions may be called from any goroutine.
//
//	wording.Public("scheduler: queue full") // "coppice: queue full"
package wording

import (
	"errors"
	"regexp"
	"strings"
)

// packages are the names that errors of this module begin with; a test of internal/lint
// compares them with the sources.
var packages = strings.Fields(`actors anthropic backends bench blockio budget bundle card carrier chat cpu cu cuda cudamem cudrv decisions dirmem diskmem dlopen engine eventlog events fleet
	gguf gpucheck grammar hostmem hub intake jsonschema kv kvindex load local mempool missratio mocker model nats notes offheap openai ops
	ptxvm radixcache random record router sampling scheduler server sim sites slotted stores stub tiering tokenizer tool trainer view vm wire writer zmq`)

// Name begins the errors of the module's public packages.
const Name = "coppice: "

var (
	names = `(?:(?:coppice|` + strings.Join(packages, "|") + `): )+`
	inner = regexp.MustCompile(`(?m)^` + names)
	bare  = regexp.MustCompile(`(?m)^(--[a-z0-9-]+: |)` + names)
)

// Public returns the text of an error with Name in place of the names of packages at the
// beginning of each of its lines.
func Public(text string) string { return inner.ReplaceAllLiteralString(text, Name) }

// Bare returns the text of an error without the names of packages at the beginning of its lines and
// after the name of a flag there: "--model: not there" for "--model: hub: not there".
func Bare(text string) string { return bare.ReplaceAllString(text, "$1") }

// Error returns an error that wraps err and has Public's version of its text. errors.Is finds
// everything in the chain of err. It also finds the variables that Error itself made: if the chain
// of err has e, then errors.Is(Error(err), Error(e)) is true. Error returns err itself if err is
// already a result of Error, or if it wraps nothing and its text names no package, as with
// context.Canceled. Error(nil) is nil.
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

// Is reports whether target is the result of Error for an error in e's chain.
func (e *public) Is(target error) bool {
	t, ok := target.(*public)
	return ok && errors.Is(e.err, t.err)
}
