package conversation

import (
	"time"

	"github.com/coppice-llm/coppice/internal/jsontext"
	"github.com/coppice-llm/coppice/kv"
)

// Head holds the facts about an answer that are known before its first token.
type Head struct {
	ID           string // 16 hexadecimal digits; an API puts its own prefix before them
	Created      int64  // Unix seconds
	Model        string
	PromptTokens int // cached ones included
}

// Kind is the kind of an Event, and of an Item.
type Kind uint8

// Values of Kind.
const (
	Text      Kind = iota
	Thought        // reasoning
	Call           // the beginning of a call
	Arguments      // of the call that began last
	// Scores are the log-probabilities of tokens, before the text, reasoning or call that these tokens are part
	// of. Only requests with Params.Logprobs get them, streamed or not.
	Scores
)

// Event is a part of an answer, in the order of the output.
type Event struct {
	Kind   Kind
	Text   string // a piece of text, reasoning or arguments; of a call the name of the tool
	CallID string // of a call, and of its arguments
	Scores []Score
}

// Score is the log-probability of a token.
type Score struct {
	Bytes   []byte // of the token's text; empty for a control token
	Logprob float32
	Top     []Score // the most probable tokens at its position, best first, without Top of their own
}

// AppendScore writes the members of a score that APIs have in common, and leaves the object open.
func AppendScore(dst []byte, s *Score) []byte {
	dst = append(dst, `{"token":`...)
	dst = jsontext.AppendString(dst, string(s.Bytes))
	dst = append(dst, `,"logprob":`...)
	dst = jsontext.AppendFloat(dst, s.Logprob)
	dst = append(dst, `,"bytes":`...)
	return jsontext.AppendArray(dst, len(s.Bytes), func(dst []byte, i int) []byte { return jsontext.AppendInt(dst, int(s.Bytes[i])) })
}

// Reason says why an answer ended.
type Reason uint8

// Values of Reason.
const (
	Stopped    Reason = iota // the model had nothing to add
	StopString               // at a stop string, see Ending.StopString
	Full                     // at the limit of tokens
	Called                   // the model waits for the results of its calls
)

// Ending describes the end of an answer.
type Ending struct {
	Reason     Reason
	StopString string
	Usage      Usage
	// Tokens are prompt and output, without the token that stopped it: a next prompt that begins with them
	// continues the conversation. Read only.
	Tokens []kv.Token
	Times  Times
}

// Times are the durations of an answer, from when the scheduler got the request.
type Times struct{ Queued, FirstToken, Total time.Duration }

// Usage counts tokens. The tokens of a prompt with several choices count once. CachedTokens is
// then the count of the choice that found the fewest cached tokens: what the other choices find
// beyond that, this choice has computed.
type Usage struct {
	PromptTokens     int
	CachedTokens     int // prompt tokens from the cache; -1 if decoded from an answer without this count
	CachedByTier     [kv.Tiers]int
	CompletionTokens int
	// AcceptedDrafts are the output tokens that speculation had guessed, and RejectedDrafts the guesses
	// that the output did not confirm; these are not part of CompletionTokens.
	AcceptedDrafts, RejectedDrafts int
}

// Answer is a whole answer.
type Answer struct {
	Head
	Items  []Item // in the order of the output
	Scores []Score
	Ending Ending

	loose []Score // the last Scores, which no item has yet
}

// Item is a part of a whole answer: text, reasoning, or a call with its arguments.
type Item struct {
	Kind      Kind   // Text, Thought or Call
	Text      []byte // of text and reasoning
	CallID    string
	Name      string  // of the tool
	Arguments []byte  // a JSON object, unless the answer was cut within it
	Scores    []Score // of text: those of its tokens, without those of the marks around it
}

// Add adds an event at the end of the answer.
func (a *Answer) Add(e Event) {
	n := len(a.Items)
	if e.Kind == Scores {
		a.Scores, a.loose = append(a.Scores, e.Scores...), append(a.loose, e.Scores...)
		return
	}
	defer a.attribute(e, n)
	switch {
	case e.Kind == Call:
		a.Items = append(a.Items, Item{Kind: Call, CallID: e.CallID, Name: e.Text})
	case e.Kind == Arguments && n > 0:
		a.Items[n-1].Arguments = append(a.Items[n-1].Arguments, e.Text...)
	case n > 0 && a.Items[n-1].Kind == e.Kind:
		a.Items[n-1].Text = append(a.Items[n-1].Text, e.Text...)
	default:
		a.Items = append(a.Items, Item{Kind: e.Kind, Text: []byte(e.Text)})
	}
}

// attribute gives the text of e, which was just added, the scores of its tokens. before is the number of items without it. Text may come
// later than its tokens, as a character or a stop string may have several.
func (a *Answer) attribute(e Event, before int) {
	loose, bytes := a.loose, 0
	if e.Kind != Text {
		for len(loose) > 0 && bytes < len(e.Text) {
			bytes += len(loose[0].Bytes)
			loose = loose[1:]
		}
		a.loose = loose
		return
	}
	if before > 0 && len(a.Items) > before { // what is before the text ends the reasoning or the call before it
		for i := range loose {
			bytes += len(loose[i].Bytes)
		}
		for len(loose) > 0 && bytes-len(loose[0].Bytes) >= len(e.Text) {
			bytes -= len(loose[0].Bytes)
			loose = loose[1:]
		}
	}
	last := &a.Items[len(a.Items)-1]
	last.Scores, a.loose = append(last.Scores, loose...), nil
}

// Writer writes a streamed answer in the form of one API. Each method appends to dst what the client
// gets. A stream is Begin, any number of Event and Ping, and then End or Fault. One goroutine calls it.
type Writer interface {
	Begin(dst []byte, h *Head) []byte
	Event(dst []byte, e Event) []byte
	// Ping appends what shows a client that a stream that has begun goes on, although there is nothing new.
	Ping(dst []byte) []byte
	End(dst []byte, e *Ending) []byte
	// Fault ends a stream that has begun, with an error.
	Fault(dst []byte, e *Error) []byte
}

// Repeats is a Writer whose End repeats the whole answer.
type Repeats interface {
	// RepeatsScores reports whether that has log-probabilities, which take more memory than the text.
	RepeatsScores() bool
}

// Prompted is a Wire that is told the prompt before its answer begins.
type Prompted interface {
	// Prompt gives the text of the prompt and its tokens, which must not be changed.
	Prompt(text string, tokens []kv.Token)
}

// Wire is the form of the answers of one API to one request.
type Wire interface {
	// ContentType is the media type of a stream, such as text/event-stream.
	ContentType() string
	Stream() Writer
	// Whole appends an answer that is not streamed.
	Whole(dst []byte, a *Answer) []byte
}
