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
	// take notes one more token of an output, the last of text. It returns the length of the match
	// with which the drafter had guessed at that token, 0 if it had no guess, and reports whether
	// the guess was right.
	take(text []kv.Token) (match int, right bool)
	// match returns the number of last tokens of the text for which the drafter has a guess at the
	// next one; 0 if it has none.
	match() int
	// draft appends to dst guesses, at most the number most, at the tokens after text, the text of the latest
	// call of read or take.
	draft(text []kv.Token, most int, dst []kv.Token) []kv.Token
}
