package drafts

import (
	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
)

// Source is the origin of a draft.
type Source uint8

// The sources.
const (
	Own        Source = iota // the prompt and the output of the sequence itself
	Prediction               // the output that the caller expects
	Grammar                  // the format of the output leaves one way to go on
	Tree                     // what followed the same tokens in other requests

	Sources = 4 // number of sources
)

var sourceNames = enum.New[Source]("drafts", "source", "own", "prediction", "grammar", "tree")

func (s Source) String() string { return sourceNames.Name(s) }

// drafter guesses the tokens that follow a text, which grows.
type drafter interface {
	// read notes tokens of a prompt: text is the prompt up to some length, at least as much as
	// before.
	read(text []kv.Token)
	// take notes one more token of an output, the last of text. It returns the class of the guess
	// that the drafter had at that token, or none, and reports whether the guess was right.
	take(text []kv.Token) (c class, right bool)
	// guess returns the class of the guess at the next token, or none.
	guess() class
	// draft appends guesses, at most the number most, at the tokens after text, the text of the latest
	// call of read or take, and the class of each.
	draft(text []kv.Token, most int, tokens []kv.Token, classes []class) ([]kv.Token, []class)
}
