package schedtest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// Script drives a scheduler by hand, command by command, with all checkers on. One goroutine
// may use it. The commands:
//
//	init policy=lpm page-tokens=4 pages=40 step-tokens=16 max-running=4 ...
//	add id=1 prompt=(a*20) max=3 [stop=(7)] [salt=x] [public=16] [temp=0.7] [seed=5]
//	next            make a plan and submit it; show it
//	complete        take the result of the oldest plan; show what callers get
//	step [n]        next and complete, n times
//	run [n]         until nothing is open, or n steps; show the endings
//	stores took=5ms [slow=7] fail=io|corrupt|hang [move=7]   how operations of stores go from now
//	                on; slow and move name the only move that takes so long or fails; without
//	                arguments they are fast and sound
//	moved [n]       advance the clock until a move ends, or n of them; show how
//	tiers           what each tier below the device has, and has done
//	other [lose=(0..11)]   another process removes an extent from the shared tier, or writes it again
//	abort id=1      expire      fail      tick 5ms
//	fail row        the next row fails
//	why id=1        metrics     tenants   tree      events
//	post [n]        with init pool=manual: deliver n messages between scheduler and pool
//
// init takes the fields of scheduler.Config in this spelling, those of the
// backend (page-tokens, pages, positions, vocab, slots), and lease=(low,bulk,high),
// by default such that the scheduler has all pages from the start. With host=8 there is a
// host tier of 8 extents, of a page each, read at bandwidth=1000 bytes a second until that is
// measured; with disk=8 a disk, which takes what was used once too; with shared=8 a tier that others
// write to. write=through writes at once.
// Tokens are written as items, one after the other:
//
//	17       a token
//	0..19    the tokens 0 to 19, both included
//	abc      letters are tokens by their ASCII code: 97 98 99
//	a*20     an item twenty times
//	@3       request 3's prompt and output so far; @3.prompt and @3.out are one of them
//	@3:16    the first 16 of these
//
// The bug that a checker finds is shown as an error.
type Script struct {
	rig    *rig
	orders map[scheduler.RequestID]*order // all accepted requests
	nextID scheduler.RequestID
	manual bool
	badRow bool     // the next row fails
	lines  []string // outputs for callers since the previous command
	quiet  bool     // show endings only
}

// NewScript returns a script that must begin with init.
func NewScript() *Script { return &Script{} }

// commands maps names to methods.
func (s *Script) commands() map[string]func(*args) (string, error) {
	return map[string]func(*args) (string, error){
		"init": s.init, "add": s.add, "next": s.next, "complete": s.complete, "step": s.step, "run": s.run,
		"moved": s.moved, "stores": s.stores, "tiers": s.tiers, "other": s.other,
		"abort": s.abort, "fail": s.fail, "tick": s.tick, "post": s.post,
		"metrics": s.metrics, "events": s.events, "tree": s.tree, "expire": s.expire, "why": s.why, "tenants": s.tenants,
	}
}

// Do runs one command and returns its output, which may be an error.
func (s *Script) Do(cmd string, list ...Arg) string {
	f := s.commands()[cmd]
	if f == nil {
		return fmt.Sprintf("error: there is no command %q", cmd)
	}
	if s.rig == nil && cmd != "init" {
		return "error: init comes first"
	}
	s.lines = s.lines[:0]
	a := newArgs(list)
	text, err := s.call(f, a)
	if err != nil {
		return "error: " + oneLine(err.Error())
	}
	if text = strings.TrimRight(text, "\n"); text == "" {
		return "ok"
	}
	return text
}

// call runs a command and then the checkers. The error is the command's, or a *Failure.
func (s *Script) call(f func(*args) (string, error), a *args) (text string, err error) {
	defer func() {
		if v := recover(); v != nil {
			failure, ok := v.(*Failure)
			if !ok {
				panic(v)
			}
			err = failure
		}
	}()
	if text, err = f(a); err == nil {
		if !s.manual {
			s.rig.deliver()
		}
		s.rig.settleScript()
	}
	return text, err
}

func (s *Script) init(a *args) (string, error) {
	device := sim.Config{
		PageTokens: a.number("page-tokens", 4), Pages: a.number("pages", 40), Vocab: a.number("vocab", 128),
		MaxPositions: a.number("positions", 4096), MaxSlots: a.number("slots", 8), MaxTokens: 512, MaxInflight: 3, Clock: sim.NewClock(),
	}
	device.MaxRows = device.MaxSlots
	device.Faults.Row = s.rowFault
	cfg, err := scriptConfig(a, device.Pages)
	if err == nil {
		cfg.Tiers, err = scriptTiers(a, device.PageTokens)
	}
	s.manual = a.text("pool", "auto") == "manual"
	if err := errors.Join(err, a.done()); err != nil {
		return "", err
	}
	r, err := newRig(Options{}, noBug{}, device, cfg)
	if err != nil {
		return "", err
	}
	s.rig, s.orders, s.nextID = r, map[scheduler.RequestID]*order{}, 0
	r.mail.delay = func() time.Duration {
		if s.manual {
			return time.Hour // longer than any step
		}
		return 0
	}
	r.listener, r.log = s.heard, new([]kv.Event)
	r.pump()
	return "", nil
}

// settleScript is settle without the checkers that expect the next plan at once: a script makes
// plans only when told to.
func (r *rig) settleScript() {
	r.each(func(c checker) {
		if c != r.progress && c != r.lower.ledger {
			c.settled()
		}
	})
}

func (s *Script) add(a *args) (string, error) {
	id := scheduler.RequestID(a.number("id", int(s.nextID)+1))
	prompt, err := s.parseTokens(a.values("prompt"))
	stop, err2 := s.parseTokens(a.values("stop"))
	allowed, err3 := s.parseTokens(a.values("allowed"))
	req := scheduler.Request{ID: id, Prompt: prompt, PublicTokens: a.number("public", 0), MaxTokens: a.number("max", 0), MinTokens: a.number("min", 0), StopTokens: stop, AllowedTokens: allowed, Digest: a.has("digest")}
	req.Namespace.Salt, req.Namespace.LoRA = a.text("salt", ""), a.text("lora", "")
	// Seeds must differ, since they identify the sample of a bind.
	req.Sampling = engine.SamplingParams{Seed: uint64(a.number("seed", int(id))), Temperature: a.fraction("temp")}
	s.scriptRequest(&req, a)
	if err := errors.Join(err, err2, err3, a.done()); err != nil {
		return "", err
	}
	if s.rig.book.seeds[req.Sampling.Seed] != nil && s.rig.book.byID[id] == nil {
		return "", fmt.Errorf("seed %d is an open request's already", req.Sampling.Seed)
	}
	o, err := s.rig.add(req)
	if err != nil {
		return "refused: " + oneLine(err.Error()), nil
	}
	s.orders[id], s.nextID = o, max(s.nextID, id)
	return s.told(), nil // outputs of displaced requests
}

func (s *Script) next(a *args) (string, error) {
	if err := a.done(); err != nil {
		return "", err
	}
	return s.planned(), nil
}

func (s *Script) planned() string {
	f := s.rig.plan()
	if f == nil && !s.manual && s.rig.mail.underway > 0 {
		s.rig.deliver() // a shell plans again when pages have arrived
		f = s.rig.plan()
	}
	if f == nil {
		return "no plan\n"
	}
	return formatMoves(f.plan) + s.rig.book.formatPlan(f.plan, s.rig.rows) + "\n"
}

func (s *Script) complete(a *args) (string, error) {
	if err := a.done(); err != nil {
		return "", err
	}
	if !s.land() {
		return "", errors.New("no plan runs")
	}
	return s.told(), nil
}

// land advances the clock until the oldest plan is done, and completes it.
func (s *Script) land() bool {
	if len(s.rig.flights) == 0 {
		return false
	}
	for !s.rig.arrived() && s.rig.clock.Step() {
	}
	s.rig.land()
	return true
}

// told returns the outputs for callers since the previous command.
func (s *Script) told() string {
	text := strings.Join(s.lines, "")
	s.lines = s.lines[:0]
	return text
}

// heard adds the line for an output.
func (s *Script) heard(of *sample, o *scheduler.Output) {
	line := label(of) + ":"
	if o.Sampled {
		line += fmt.Sprintf(" token %d", o.Token)
	}
	if e := &o.Ending; e.Reason != scheduler.NotEnded {
		line += fmt.Sprintf(" ends by %v", e.Reason)
		if e.Err != nil {
			line += fmt.Sprintf(" (%v)", e.Err)
		}
		line += fmt.Sprintf(", %d prompt, %d cached%s, %d output", e.PromptTokens, e.CachedTokens, formatByTier(e), e.OutputTokens)
		if e.Preemptions > 0 {
			line += ", " + plural(e.Preemptions, "preemption")
		}
	} else if s.quiet {
		return
	}
	s.lines = append(s.lines, line+"\n")
}

func (s *Script) step(a *args) (string, error) {
	n := a.first(1)
	if err := a.done(); err != nil {
		return "", err
	}
	var text strings.Builder
	for range n {
		text.WriteString(s.planned())
		if !s.land() {
			break
		}
		text.WriteString(s.told())
		s.between()
	}
	return text.String(), nil
}

// between delivers messages and runs the checkers between two steps of one command.
func (s *Script) between() {
	if !s.manual {
		s.rig.deliver()
	}
	s.rig.settleScript()
}

// fly submits plans until there is none.
func (s *Script) fly() {
	for {
		for s.rig.plan() != nil {
		}
		if s.manual || s.rig.mail.underway == 0 || len(s.rig.flights) > 0 {
			return
		}
		s.rig.deliver()
	}
}

func (s *Script) run(a *args) (string, error) {
	most := a.first(1000)
	if err := a.done(); err != nil {
		return "", err
	}
	s.quiet = true
	defer func() { s.quiet = false }()
	steps := 0
	for steps < most && len(s.rig.book.live) > 0 {
		s.fly()
		if !s.land() {
			return s.told() + plural(steps, "step") + ", then nothing moves\n", nil
		}
		s.between()
		steps++
	}
	return s.told() + plural(steps, "step") + "\n", nil
}
