package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"

	"github.com/coppice-llm/coppice/kv"
)

// Streams of random numbers. Each has one purpose, so that a change in how one is drawn
// does not change the others.
const (
	arrivalStream uint64 = iota + 1
	probeStream
	orderStream
	promptStream uint64 = 1 << 32 // plus the number of the session
	prefixStream uint64 = 2 << 32 // plus the number of the group
	blockStream  uint64 = 3 << 32 // plus the id of the block
)

// Vocabulary is the set from which made-up prompts are drawn: token ids in [Low, High),
// or, if High is 0, common English words. A word is about one token of a large
// vocabulary, and more of a small one.
type Vocabulary struct {
	Low, High kv.Token
}

// VocabularyOf returns the token ids of a vocabulary of this size, without the lowest min(1000,
// size/4) ids: these are often control tokens and single bytes.
func VocabularyOf(size int) Vocabulary {
	return Vocabulary{Low: kv.Token(min(1000, size/4)), High: kv.Token(size)}
}

// String describes the set.
func (v Vocabulary) String() string {
	if v.High == 0 {
		return "words"
	}
	return fmt.Sprintf("token ids %d to %d", v.Low, v.High-1)
}

// segment draws n tokens or words.
func (v Vocabulary) segment(rng *rand.Rand, n int) Segment {
	var s Segment
	v.extend(&s, rng, n)
	return s
}

// extend appends n drawn tokens or words to s.
func (v Vocabulary) extend(s *Segment, rng *rand.Rand, n int) {
	if v.High != 0 {
		for range n {
			s.Tokens = append(s.Tokens, v.Low+kv.Token(rng.Uint32N(uint32(v.High-v.Low))))
		}
		return
	}
	var b strings.Builder
	b.WriteString(s.Text)
	for range n {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(words[rng.IntN(len(words))])
	}
	s.Text = b.String()
	s.Words += n
}

// probeSizes are the vocabulary sizes that Probe tries. Current models have larger
// vocabularies than the first; the last is for models of single bytes.
var probeSizes = []int{32000, 16000, 8000, 4000, 2000, 1000, 500, 250}

// Probe finds the vocabulary for prompts to the server. It sends requests of two tokens with one
// token of output. It returns the token ids of the largest of probeSizes that the server accepts,
// or words if the server accepts no token ids; the endpoint [Chat] never does. If dialogues is
// true, Probe returns token ids only if the server also sends the ids of its output, which the
// next prompt of a conversation must contain. It returns only errors that every request would
// meet, such as an unknown model or a refused key.
func (c *Client) Probe(ctx context.Context, dialogues bool) (Vocabulary, error) {
	if c.cfg.Endpoint == Chat {
		return Vocabulary{}, c.probeWords(ctx)
	}
	sc := newScratch()
	rng := rand.New(rand.NewPCG(0, probeStream))
	for _, size := range probeSizes {
		v := VocabularyOf(size)
		d := &dialogue{}
		d.add("user", &Segment{Tokens: []kv.Token{v.Low + kv.Token(rng.IntN(int(v.High-v.Low))), v.High - 1}})
		options := c.cfg.Options
		options.tokenIDs = dialogues
		c.exchange(ctx, sc, options.body(c.cfg.Endpoint, c.cfg.Model, d, 1), "", true)
		switch s := &sc.sample; {
		case s.failure == None && dialogues && len(s.tokens) == 0:
			return Vocabulary{}, c.probeWords(ctx)
		case s.failure == None:
			return v, nil
		case !blamesPrompt(s):
			return Vocabulary{}, fmt.Errorf("load: a first request, %v: %w", s.failure, s.err)
		}
	}
	return Vocabulary{}, c.probeWords(ctx)
}

// blamesPrompt reports whether a failure may be due to the prompt, so that another
// prompt could succeed. Some servers answer 500 to prompts of a type that they do not
// know.
func blamesPrompt(s *sample) bool {
	switch s.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
		return false
	}
	return s.failure == Refused || s.status == http.StatusInternalServerError || s.failure == StreamError
}

// probeWords sends a request of one word; its failure is an error.
func (c *Client) probeWords(ctx context.Context) error {
	sc, d := newScratch(), &dialogue{}
	d.add("user", &Segment{Text: "light"})
	c.exchange(ctx, sc, c.cfg.body(c.cfg.Endpoint, c.cfg.Model, d, 1), "", false)
	switch s := &sc.sample; s.failure {
	case None:
		return nil
	case Unfinished:
		return context.Cause(ctx)
	default:
		return fmt.Errorf("load: a first request, %v: %w", s.failure, s.err)
	}
}

// words are common short English words. In current vocabularies each one, with a space
// before it, is a single token.
var words = strings.Fields(`
able about above across after again against age ago air all almost along already also always among animal answer any
area arm around art ask away baby back bad ball bank base bed before began behind best better between big bird black
blue board boat body book born both bottom box boy bring brought build built business busy call came car care carry
case cat catch cause center certain chance change check child city class clear close cold color come common complete
cost could country course cover cross current cut dark day deal death decide deep did different dog door down draw drive
drop dry during each early earth east easy eat edge effect eight either else end energy enough even evening ever every
example eye face fact fall family far farm fast father fear feel feet few field fight figure fill final find fine fire
first fish five floor fly follow food foot force form found four free friend from front full game garden gave general
girl give glass go gold gone good got great green ground group grow had half hand happen happy hard has hat have head
hear heart heat heavy held help here high hill history hold home hope horse hot hour house how human hundred ice idea
important inside island job just keep kept key kind king know land language large last late laugh lay lead learn leave
left less letter level life light like line list listen little live long look lost love low machine made main make man
many map mark market matter may mean measure men middle might mile milk mind minute money month moon more morning most
mother mountain mouth move music must name near need never new next night nine north nose note nothing notice number
ocean off often oil old once one only open order other our outside over own page paper part party pass past path pay
people perhaps person picture piece place plan plant play point power present press problem product pull push put
question quick quite race rain reach read ready real reason record red rest result rich ride right river road rock roll
room round rule run said sail same sand saw say school science sea season second see seem send sense set seven several
shape ship short should show side sign simple since sing sister sit six size sky sleep slow small snow some son song
soon sound south space special speed spell spring stand star start state stay step still stone stop store story street
strong study such summer sun sure surface system table tail take talk teach tell ten test than then there these thing
think third this thought thousand three through time together told took top total toward town travel tree true try turn
two under unit until use usual value very view village visit voice wait walk wall want war warm watch water way weather
week weight well went were west what wheel when where which while white whole why wide wild will wind window winter
wish with without woman wonder wood word work world would write wrong year yes yet young
`)
