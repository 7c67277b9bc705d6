package actors

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/scheduler"
)

// poison is a message of an unknown type: the actor that receives it panics.
type poison struct{}

// loadConfig makes steps shorter than a prompt, and the first grant of pages large enough for
// all requests admitted during load: a second grant would arrive at an arbitrary step.
var loadConfig = scheduler.Config{MaxRunning: 4, StepTokens: 16, LeaseBulkPages: 256, Events: true}

// loaded returns request i of a load.
func loaded(i int) Request {
	return Request{Prompt: fmt.Sprint(i) + prompt, MaxTokens: 2000, IgnoreEOS: true}
}

// load opens requests and brings them into every phase, where they stay: two decode, one is in
// the middle of its prompt, eight are queued, and the last one is on its way to the tokenizer.
// s must run with loadConfig.
func load(t *testing.T, s *System, h *held) []*Stream {
	t.Helper()
	streams := []*Stream{open(t, s, loaded(0))}
	gauges(t, s, 1, 0)
	streams = append(streams, open(t, s, loaded(1)))
	gauges(t, s, 1, 1)
	h.let(first(2))
	for _, stream := range streams {
		if _, err := stream.Next(patience(t)); err != nil {
			t.Fatal(err)
		}
	}
	for i := 2; i < 11; i++ {
		streams = append(streams, open(t, s, loaded(i)))
	}
	gauges(t, s, 2, 9)
	h.let(steps(1)) // the next one begins a prompt
	gauges(t, s, 3, 8)
	last, err := s.requests.enter(1)
	if err != nil {
		t.Fatal(err)
	}
	return append(streams, last)
}

// TestKillEachActor kills each kind of state actor under load, by a panic and by a stop from
// outside. Every open request ends with an error that names the actor, Close returns, and
// start's cleanup finds no leaked goroutine.
func TestKillEachActor(t *testing.T) {
	kinds := map[string]func(s *System) *process{
		"scheduler": func(s *System) *process { return s.scheduler },
		"engine":    func(s *System) *process { return s.engine },
		"pool":      func(s *System) *process { return s.pool },
		"deliverer": func(s *System) *process { return s.deliverer },
	}
	for name, pick := range kinds {
		for _, how := range []string{"panicked", "stopped"} {
			for inflight := 1; inflight <= 2; inflight++ {
				for device, pass := range map[string]rule{"stands": none, "runs": short(1000)} {
					t.Run(fmt.Sprintf("%s %s, %d in flight, the device %s", name, how, inflight, device), func(t *testing.T) {
						killed(t, name, how, pick, inflight, pass)
					})
				}
			}
		}
	}
}

func killed(t *testing.T, name, how string, pick func(s *System) *process, inflight int, pass rule) {
	h := hold(t, cpu.Config{KVTokens: 16384})
	cfg := loadConfig
	cfg.MaxInflight = inflight
	s := start(t, Config{Backend: h, Scheduler: cfg}, cpu.Config{})
	streams := load(t, s, h)
	h.let(pass)
	if how == "panicked" {
		pick(s).tell(&poison{})
	} else {
		pick(s).quit()
	}
	for i, stream := range streams {
		_, _, e := drain(t, stream)
		if e.Reason != scheduler.Failed || !strings.Contains(e.Err.Error(), name+" actor "+how) {
			t.Errorf("stream %d: ended by %v: %v", i, e.Reason, e.Err)
		}
	}
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("Close says %v", err)
	}
	if _, err := s.Open(Request{Prompt: prompt}); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("Open says %v", err)
	}
}

// TestKillTokenizer: a worker has no state, so its panic fails only the request that it was
// encoding, and the worker continues.
func TestKillTokenizer(t *testing.T) {
	h := hold(t, cpu.Config{KVTokens: 16384})
	s := start(t, Config{Backend: h, Tokenizers: 1, Scheduler: loadConfig}, cpu.Config{})
	streams := load(t, s, h)
	s.workers[0].tell(&poison{})
	// Without a tokenizer, this worker panics at each request.
	broken := s.spawn("tokenizer", restartOnPanic, func() receiver { return &tokenizerActor{sys: s} })
	s.workers = append(s.workers, broken)
	for range 20 { // more than protoactor's default strategy would restart
		stream, err := s.requests.enter(1)
		if err != nil {
			t.Fatal(err)
		}
		broken.tell(&encode{stream: stream, req: Request{Prompt: prompt}})
		if _, _, e := drain(t, stream); e.Reason != scheduler.Failed || !strings.Contains(e.Err.Error(), "tokenizer actor panicked") {
			t.Errorf("ending %+v", e)
		}
	}
	for _, stream := range streams {
		stream.Abort(nil)
	}
	s.workers[0].tell(&encode{stream: streams[11], req: loaded(11)})
	h.let(all)
	for _, stream := range streams {
		if _, _, e := drain(t, stream); !errors.Is(e.Err, scheduler.ErrAborted) {
			t.Errorf("a request that was not at the tokenizer ended with %v", e.Err)
		}
	}
	stream, err := s.requests.enter(1)
	if err != nil {
		t.Fatal(err)
	}
	s.workers[0].tell(&encode{stream: stream, req: Request{Prompt: prompt, MaxTokens: 1}})
	if _, _, e := drain(t, stream); e.Err != nil {
		t.Errorf("the worker does not go on: %v", e.Err)
	}
	conserve(t, s)
	if err := s.Close(); err != nil {
		t.Errorf("Close says %v", err)
	}
}

// failing is a device that is lost in the step whose number is at.
type failing struct {
	engine.Backend
	steps int
	how   string // the call that fails: "submit", "ticket", or "panic" for a panic in the ticket
}

var errDevice = &engine.Error{Backend: "cpu", Op: "step", Err: errors.New("device lost")}

func (f *failing) Submit(b *engine.Batch) (engine.Ticket, error) {
	f.steps--
	if f.steps > 0 {
		return f.Backend.Submit(b)
	}
	if f.how == "submit" {
		return nil, errDevice
	}
	ticket, err := f.Backend.Submit(b)
	if f.how == "panic" {
		return panickyTicket{ticket}, err
	}
	return lostTicket{ticket}, err
}

type lostTicket struct{ engine.Ticket }

func (lostTicket) Result() (*engine.Result, error) { return nil, errDevice }

type panickyTicket struct{ engine.Ticket }

func (panickyTicket) Result() (*engine.Result, error) { panic("out of its mind") }

func TestDeviceLost(t *testing.T) {
	for how, want := range map[string]string{"submit": "device lost", "ticket": "device lost", "panic": "out of its mind"} {
		for inflight := 1; inflight <= 2; inflight++ {
			s := start(t, Config{
				Backend:   &failing{backend(t, cpu.Config{KVTokens: 16384}), 30, how},
				Scheduler: scheduler.Config{MaxRunning: 4, StepTokens: 32, MaxInflight: inflight},
			}, cpu.Config{})
			lost := func(err error) bool { return err != nil && strings.Contains(err.Error(), want) }
			var streams []*Stream
			for i := range 12 {
				stream, err := s.Open(Request{Prompt: fmt.Sprint(i) + prompt, MaxTokens: 2000, IgnoreEOS: true})
				switch {
				case err == nil:
					streams = append(streams, stream)
				case !lost(err): // else the device was lost before this request was admitted
					t.Fatal(err)
				}
			}
			for i, stream := range streams {
				if _, _, e := drain(t, stream); !lost(e.Err) {
					t.Errorf("%s, %d in flight: stream %d ended with %v", how, inflight, i, e.Err)
				}
			}
			if err := s.Close(); !lost(err) {
				t.Errorf("%s, %d in flight: Close says %v", how, inflight, err)
			}
			// All actors but the engine ended in order.
			if st, err := s.Stats(patience(t)); err != nil || st.LeakedPages != 0 {
				t.Errorf("%s, %d in flight: %d pages leaked, %v", how, inflight, st.LeakedPages, err)
			}
		}
	}
}
