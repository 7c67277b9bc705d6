package actors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// printable are the tokens of nano that are ASCII that can be seen, or a space: with
// these alone the text is the tokens' bytes.
func printable() (tokens []kv.Token) {
	for t := range kv.Token(nano.Tokenizer().VocabSize()) {
		text := nano.Tokenizer().Text(t)
		if text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
			tokens = append(tokens, t)
		}
	}
	return tokens
}

// A stop string ends the output before it, whatever tokens it is made of, and
// nothing of it is ever handed out.
func TestStopStrings(t *testing.T) {
	for inflight := 1; inflight <= 2; inflight++ {
		s := start(t, Config{Scheduler: scheduler.Config{MaxInflight: inflight}}, cpu.Config{})
		req := Request{Prompt: prompt, MaxTokens: 120, IgnoreEOS: true, AllowedTokens: printable(), Sampling: engine.SamplingParams{Temperature: 1.2, Seed: 3}}
		_, whole, _ := drain(t, open(t, s, req))
		if len(whole) < 100 {
			t.Fatalf("%q is too short, take another seed", whole)
		}
		for at := 20; at < 90; at += 7 {
			for _, n := range []int{1, 3, 9} {
				stop := whole[at : at+n]
				first := strings.Index(whole, stop)
				for _, keep := range []bool{false, true} {
					req := req
					req.StopStrings, req.KeepStop = []string{"never said", stop, stop + "x"}, keep
					want := whole[:first]
					if keep {
						want += stop
					}
					_, text, e := drain(t, open(t, s, req))
					if text != want || e.Reason != scheduler.Stop || e.StopString != stop {
						t.Errorf("stopped at %q: %q, want %q; ending %v at %q", stop, text, want, e.Reason, e.StopString)
					}
				}
			}
		}
		// Not within MinTokens, and then at the next one.
		req.StopStrings = []string{"a", "e", "o"}
		for _, least := range []int{1, 10, 60} {
			req.MinTokens = least
			tokens, text, e := drain(t, open(t, s, req))
			if !strings.HasPrefix(whole, text) || len(tokens) <= least && e.Reason == scheduler.Stop {
				t.Errorf("MinTokens %d: %d tokens, %q", least, len(tokens), text)
			}
		}
		conserve(t, s)
	}
}

// A stop string across pieces is held back until it is known not to be one.
func TestStopStringsAreHeldBack(t *testing.T) {
	s := start(t, Config{}, cpu.Config{})
	req := Request{Prompt: prompt, MaxTokens: 60, IgnoreEOS: true, AllowedTokens: printable(), Sampling: engine.SamplingParams{Temperature: 1, Seed: 5}}
	_, whole, _ := drain(t, open(t, s, req))
	// Each beginning of this is there, the whole is not: it ends with what is not said.
	req.StopStrings = []string{whole[8:30] + "\x00"}
	_, text, e := drain(t, open(t, s, req))
	if text != whole || e.Reason != scheduler.Length {
		t.Errorf("%q ended by %v, want %q", text, e.Reason, whole)
	}
}

func TestFormats(t *testing.T) {
	const person = `{"type":"object","properties":{"name":{"type":"string","maxLength":12},"age":{"type":"integer","minimum":0,"maximum":150},
		"tags":{"type":"array","items":{"enum":["a","b"]},"maxItems":3}},"required":["name","age"],"additionalProperties":false}`
	for inflight := 1; inflight <= 2; inflight++ {
		s := start(t, Config{Scheduler: scheduler.Config{MaxInflight: inflight, MaxRunning: 3, StepTokens: 48}}, cpu.Config{})
		phone := `[0-9]{3}-[0-9]{4}( ext [0-9]{1,3})?`
		var streams []*Stream
		var checks []func(text string) bool
		for i := range 24 {
			req := Request{Prompt: prompt, MaxTokens: 200, Sampling: engine.SamplingParams{Temperature: 1, Seed: uint64(i)}}
			switch i % 4 {
			case 0:
				req.Format.Regexp = phone
				checks = append(checks, regexp.MustCompile("^(?:"+phone+")$").MatchString)
			case 1:
				req.Format.JSONSchema = person
				checks = append(checks, func(text string) bool {
					var p struct {
						Name *string
						Age  *int
						Tags []string
					}
					d := json.NewDecoder(strings.NewReader(text))
					d.DisallowUnknownFields()
					return d.Decode(&p) == nil && p.Name != nil && len([]rune(*p.Name)) <= 12 && p.Age != nil && *p.Age <= 150 && len(p.Tags) <= 3
				})
			case 2:
				req.Format.JSON = true
				checks = append(checks, func(text string) bool { return strings.HasPrefix(text, "{") })
			case 3:
				req.IgnoreEOS, req.MaxTokens = true, 20
				checks = append(checks, func(text string) bool { return text != "" })
			}
			streams = append(streams, open(t, s, req))
		}
		for i, stream := range streams {
			_, text, e := drain(t, stream)
			if e.Err != nil || !checks[i](text) || i%4 < 2 && e.Reason != scheduler.Stop {
				t.Errorf("request %d: %q, ended by %v, %v", i, text, e.Reason, e.Err)
			}
			if i%4 == 2 && e.Reason == scheduler.Stop && !json.Valid([]byte(text)) {
				t.Errorf("request %d: %q is no JSON", i, text)
			}
		}
		conserve(t, s)
	}
}

// What can't be compiled ends the request, each time; a hard one for lack of time.
func TestFormatsRefused(t *testing.T) {
	s := start(t, Config{}, cpu.Config{})
	for _, f := range []Format{
		{Regexp: "("}, {Regexp: `a\bc`}, {JSONSchema: "{"}, {JSONSchema: `{"not":{}}`}, {JSON: true, Regexp: "a"},
	} {
		for range 2 { // the second time it is known
			stream, err := s.Open(Request{Prompt: prompt, Format: f, Samples: 2})
			if err == nil {
				for range 2 {
					_, err = stream.Next(patience(t))
				}
			}
			if !errors.Is(err, scheduler.ErrInvalid) {
				t.Errorf("%+v: %v", f, err)
			}
		}
	}
	conserve(t, s)
	hurried := start(t, Config{FormatTimeout: 1}, cpu.Config{})
	_, err := open(t, hurried, Request{Prompt: prompt, Format: Format{Regexp: "a+"}}).Next(patience(t))
	if !errors.Is(err, ErrFormatTimeout) {
		t.Errorf("within a nanosecond: %v", err)
	}
	// Who needs no format does not wait for it.
	drain(t, open(t, hurried, Request{Prompt: prompt, MaxTokens: 3}))
}

// formatsAlone is a formats actor whose compilers are the test's, and a system around it.
func formatsAlone(t *testing.T, cfg Config) (*System, *formatsActor, func(Request) *Stream) {
	s := start(t, cfg, cpu.Config{})
	a := newFormatsActor(s)
	t.Cleanup(a.release)
	return s, a, func(req Request) *Stream {
		stream, err := s.door.enter(1)
		if err != nil {
			t.Fatal(err)
		}
		a.need(&needFormat{&submit{stream: stream, req: scheduler.Request{Tenant: req.Tenant, QueueTimeout: req.QueueTimeout}}, req.Format})
		return stream
	}
}

func ended(t *testing.T, stream *Stream, want error) {
	t.Helper()
	if _, err := stream.Next(patience(t)); !errors.Is(err, want) {
		t.Errorf("ended by %v, want %v", err, want)
	}
}

// Formats are compiled once; those who wait for one and give up are gone at once;
// faults are remembered, a lack of time is not.
func TestFormatsAreKept(t *testing.T) {
	s, a, ask := formatsAlone(t, Config{})
	a.idle = nil // compilers are busy
	form := func(text string) Request { return Request{Format: Format{Regexp: text}} }
	done := func(text string, err error) {
		f := Format{Regexp: text}
		c := a.making[f]
		if c == nil {
			c = &compile{format: f}
		}
		a.compiled(&compiled{compile: c, err: err})
		a.idle, a.turns = nil, nil
	}
	first, second, third := ask(form("a")), ask(form("a")), ask(form("b"))
	if len(a.turns) != 1 || len(a.turns[0].formats) != 2 || len(a.waiting[Format{Regexp: "a"}]) != 2 {
		t.Fatalf("%+v are to be compiled for %+v", a.turns, a.waiting)
	}
	a.abort(&abort{second.id, context.Canceled})
	ended(t, second, context.Canceled)
	fault := fmt.Errorf("%w: no format", scheduler.ErrInvalid)
	done("a", fault)
	ended(t, first, scheduler.ErrInvalid)
	ended(t, ask(form("a")), scheduler.ErrInvalid) // at once
	done("b", ErrFormatTimeout)
	ended(t, third, ErrFormatTimeout)
	fourth := ask(form("b")) // once more
	if len(a.waiting[Format{Regexp: "b"}]) != 1 {
		t.Error("a lack of time is remembered")
	}
	a.abort(&abort{fourth.id, context.Canceled})
	ended(t, fourth, context.Canceled)
	for i := range 2 * refusedFormats {
		stream := ask(form(fmt.Sprint("bad", i)))
		done(fmt.Sprint("bad", i), fault)
		ended(t, stream, scheduler.ErrInvalid)
	}
	if len(a.refused.byKey) != refusedFormats || a.refused.byUse.Len() != refusedFormats {
		t.Errorf("%d faults are remembered", len(a.refused.byKey))
	}
	if s.door.taken != 0 || len(a.waiting)+len(a.making) != 0 {
		t.Errorf("%d credits are missing, %v wait", s.door.taken, a.waiting)
	}
}

// Of each tenant one format is at a compiler at a time, whoever asked first; what
// nobody waits for any more is given up.
func TestFormatsOfTenantsTakeTurns(t *testing.T) {
	_, a, ask := formatsAlone(t, Config{})
	defer deafen(a.sys)()
	making := func(want ...string) {
		t.Helper()
		var got []string
		for f := range a.making {
			got = append(got, f.Regexp)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("at the compilers are %v, want %v", got, want)
		}
	}
	streams := map[string]*Stream{}
	for _, name := range []string{"a0", "a1", "a2", "b0", "c0", "c1"} {
		streams[name] = ask(Request{Tenant: name[:1], Format: Format{Regexp: name}})
	}
	done := func(name string, err error) { a.compiled(&compiled{compile: a.making[Format{Regexp: name}], err: err}) }
	making("a0", "b0")
	done("a0", errDevice)
	making("b0", "c0") // not a1
	a.abort(&abort{streams["c0"].id, nil})
	if !a.making[Format{Regexp: "c0"}].unwanted.Load() {
		t.Error("c0 is compiled for nobody")
	}
	again := ask(Request{Tenant: "c", Format: Format{Regexp: "c0"}})
	done("c0", errUnwanted)
	making("a1", "b0")
	done("b0", errDevice)
	making("a1", "c1")
	done("c1", errDevice)
	making("a1", "c0") // once more
	done("c0", errDevice)
	ended(t, again, errDevice)
	done("a1", errDevice)
	making("a2")
	done("a2", errDevice)
	making()
	if len(a.waiting)+len(a.busy)+len(a.turns) != 0 || len(a.idle) != 2 {
		t.Errorf("left are %v %v %v, idle %v", a.waiting, a.busy, a.turns, a.idle)
	}
}

// deafen has formats compiled by nobody, until it is undone.
func deafen(s *System) (undo func()) {
	compilers := s.compilers
	deaf := &process{pid: s.spawn("deaf", restartOnPanic, func() receiver { return deafActor{} }).pid}
	s.compilers = []*process{deaf, deaf}
	return func() { s.compilers = compilers }
}

type deafActor struct{}

func (deafActor) receive(self *process, message any) {
	if _, ok := message.(*shutdown); ok {
		self.quit()
	}
}

// Who waits for a format runs out of time as anybody does.
func TestFormatsDoNotStopTheClock(t *testing.T) {
	_, a, ask := formatsAlone(t, Config{})
	a.idle = nil
	late := ask(Request{Format: Format{Regexp: "a"}, QueueTimeout: 1})
	patient := ask(Request{Format: Format{Regexp: "a"}, QueueTimeout: time.Hour})
	a.expire()
	ended(t, late, scheduler.ErrQueueTimeout)
	if waits := a.waiting[Format{Regexp: "a"}]; len(waits) != 1 || waits[0].stream != patient {
		t.Errorf("%d wait", len(waits))
	}
	a.abort(&abort{patient.id, scheduler.ErrAborted})
	ended(t, patient, scheduler.ErrAborted)
	// And in a whole system whose compilers are busy for ever, by the alarm.
	s := start(t, Config{}, cpu.Config{})
	defer deafen(s)()
	ended(t, open(t, s, Request{Prompt: prompt, Timeout: 1, Format: Format{Regexp: "a"}}), scheduler.ErrDeadline)
}

// A shelf keeps what was used last, within its room.
func TestShelf(t *testing.T) {
	s := newShelf(10)
	key := func(i int) Format { return Format{Regexp: fmt.Sprint(i)} }
	for i := range 5 {
		s.put(&format{key: key(i)}, 3)
		s.take(key(0))
	}
	s.put(&format{key: key(9)}, 11) // larger than all
	for i, want := range []bool{true, false, false, true, true} {
		if (s.take(key(i)) != nil) != want {
			t.Errorf("format %d is kept: %v", i, !want)
		}
	}
	if s.size != 9 || s.byUse.Len() != 3 || len(s.byKey) != 3 || s.take(key(9)) != nil {
		t.Errorf("%d formats of size %d", len(s.byKey), s.size)
	}
}

// MinTokens and AllowedTokens, with and without overlap.
func TestAllowedTokens(t *testing.T) {
	for inflight := 1; inflight <= 2; inflight++ {
		s := start(t, Config{Scheduler: scheduler.Config{MaxInflight: inflight}}, cpu.Config{})
		allowed := []kv.Token{40, 41, 42, 100}
		req := Request{Prompt: prompt, MaxTokens: 50, AllowedTokens: allowed, IgnoreEOS: true, StopTokens: []kv.Token{41, 42}, Sampling: engine.SamplingParams{Temperature: 2, Seed: 9}}
		for _, least := range []int{0, 1, 17, 50} {
			req.MinTokens = least
			tokens, _, e := drain(t, open(t, s, req))
			for i, token := range tokens {
				if !slices.Contains(allowed, token) || i < least && slices.Contains(req.StopTokens, token) {
					t.Errorf("MinTokens %d: token %d is %d", least, i, token)
				}
			}
			if least == 50 && e.Reason != scheduler.Length || least < 50 && e.Reason != scheduler.Stop {
				t.Errorf("MinTokens %d: ended by %v after %d", least, e.Reason, len(tokens))
			}
		}
		conserve(t, s)
	}
}

// Log-probabilities of a prompt are those that its tokens had as outputs, bit by
// bit, whatever is cached and in which chunks it is computed.
func TestLogprobs(t *testing.T) {
	s := start(t, Config{Scheduler: scheduler.Config{StepTokens: 24, ChunkTokens: 7}}, cpu.Config{})
	stream := open(t, s, Request{Prompt: prompt, MaxTokens: 40, IgnoreEOS: true, Sampling: engine.SamplingParams{Logprobs: true, TopLogprobs: 3}})
	var logprobs []float32
	var e *Ending
	for e == nil {
		piece, err := stream.Next(patience(t))
		if err != nil {
			t.Fatal(err)
		}
		if len(piece.Logprobs) != len(piece.Tokens) || len(piece.Top) != len(piece.Tokens) {
			t.Fatalf("%d tokens, %d log-probabilities, %d tops", len(piece.Tokens), len(piece.Logprobs), len(piece.Top))
		}
		for i, token := range piece.Tokens {
			if top := piece.Top[i]; len(top) != 3 || top[0].Token != token || top[0].Logprob != piece.Logprobs[i] || top[1].Logprob > top[0].Logprob {
				t.Errorf("token %d with %v: top %v", token, piece.Logprobs[i], top)
			}
		}
		logprobs = append(logprobs, piece.Logprobs...)
		e = piece.Ending
	}
	beside := open(t, s, Request{Prompt: "Something else " + prompt, MaxTokens: 100, IgnoreEOS: true})
	for range 2 {
		stream := open(t, s, Request{Tokens: e.Tokens, MaxTokens: 2, IgnoreEOS: true, PromptLogprobs: true, Samples: 2})
		var prompted []float32
		for {
			piece, err := stream.Next(patience(t))
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			prompted = append(prompted, piece.PromptLogprobs...)
			if piece.Ending != nil && piece.Sample == 0 && piece.Ending.CachedTokens != 0 {
				t.Errorf("%d tokens came from the cache", piece.Ending.CachedTokens)
			}
		}
		if len(prompted) != len(e.Tokens) || !math.IsNaN(float64(prompted[0])) {
			t.Fatalf("%d log-probabilities of %d tokens, the first is %v", len(prompted), len(e.Tokens), prompted[0])
		}
		if got := prompted[e.PromptTokens:]; !slices.Equal(got, logprobs) {
			t.Errorf("as prompt %v\nas output %v", got, logprobs)
		}
	}
	drain(t, beside)
	conserve(t, s)
}

// The caller of a format that is waited for may leave.
func TestAbortWhileFormatWaits(t *testing.T) {
	s := start(t, Config{FormatTimeout: time.Minute}, cpu.Config{})
	for i := range 20 {
		stream := open(t, s, Request{Prompt: prompt, MaxTokens: 50, Format: Format{Regexp: strings.Repeat("[a-z]{1,9} ", i+1)}})
		stream.Abort(nil)
		if _, _, e := drain(t, stream); e.Reason != scheduler.Abort && e.Reason != scheduler.Length && e.Reason != scheduler.Stop {
			t.Errorf("ended by %v, %v", e.Reason, e.Err)
		}
	}
	conserve(t, s)
}
