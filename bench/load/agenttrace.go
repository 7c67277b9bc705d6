package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// agentTrace is a data set of recorded sessions of coding agents, in the format of kv-cache-tester
// and of SemiAnalysis' InferenceX AgentX. A line is a JSON object, a session:
//
//	id             name of the session: 1 to 128 printable characters of ASCII
//	block_size     tokens of a block, a power of two
//	hash_id_scope  "local" (the default): ids stand for blocks of this session; "global": of all sessions
//	requests       the requests in their order, each an object:
//	  type         "n" or "s", a request (recorded without and with streaming), or "subagent"
//	  in, out      tokens of the prompt and of the answer
//	  hash_ids     a number for each block of the prompt, from its beginning. Equal numbers are equal
//	               blocks. Where they end, the rest of the prompt is like no other
//	  think_time   pause before the request, in seconds
//	  t, api_time  begin and duration, in seconds; used for the pause if think_time is missing
//	  requests     of a subagent: its requests, which begin after the answer to the request before
//	               it. The next request waits until all subagents before it have ended
//	  agent_id     of a subagent: its name within the session
//
// A subagent before the first request begins after the answer to that one. Other fields are ignored. The text is not in the file, so each number stands for made-up tokens,
// and each request is sent as it was recorded: the answers of the server are in no later prompt.
// Sources: docs of callanjfox/kv-cache-tester (trace replay tester), and the models of the loader in
// ai-dynamo/aiperf.
type agentTrace struct {
	cfg          TraceConfig
	name         string
	sessions     []recordedSession
	requests     int // that are sent, of all sessions
	most, fewest int // requests of a session
	tooLong      int // requests left out
}

// recordedSession is a session, or a sub-agent.
type recordedSession struct {
	name     string
	seed     uint64 // of its blocks
	block    int    // tokens
	requests []recordedRequest
}

// recordedRequest holds the ids as a difference to the request before it in the session, as a
// prompt mostly extends the one before.
type recordedRequest struct {
	number  int // among all requests of the file
	think   time.Duration
	in, out int // tokens
	same    int // blocks equal to those of the request before
	ids     []uint64
	agents  []recordedSession
}

// maxSession is the longest line of an agentTrace, in bytes. Recorded ones have up to some 20 MB.
const maxSession = 256 << 20

// agentEntry is an element of requests, in the file.
type agentEntry struct {
	Type      string       `json:"type"`
	T         *float64     `json:"t"`
	In        *int         `json:"in"`
	Out       *int         `json:"out"`
	HashIDs   []uint64     `json:"hash_ids"`
	ThinkTime *float64     `json:"think_time"`
	APITime   *float64     `json:"api_time"`
	AgentID   string       `json:"agent_id"`
	Requests  []agentEntry `json:"requests"`
}

// readAgentTrace reads a trace. An error names the line and the field.
func readAgentTrace(r io.Reader, cfg TraceConfig) (*agentTrace, error) {
	t := &agentTrace{cfg: cfg}
	err := eachLine(r, maxSession, t.read)
	if err == nil && t.requests == 0 {
		err = fmt.Errorf("all %d requests have more than %d tokens", t.tooLong, cfg.InputTokens)
	}
	return t, err
}

// read appends the session of a line.
func (t *agentTrace) read(line []byte) error {
	var e struct {
		ID       string       `json:"id"`
		Block    *int         `json:"block_size"`
		Scope    string       `json:"hash_id_scope"`
		Requests []agentEntry `json:"requests"`
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return fmt.Errorf("want a JSON object with id, block_size and requests: %w", err)
	}
	switch {
	case e.Block == nil:
		return errors.New("block_size is missing")
	case *e.Block < 1 || *e.Block > 1<<16 || *e.Block&(*e.Block-1) != 0 || *e.Block < t.cfg.Scale:
		return fmt.Errorf("block_size is %d, want a power of two, at least the scale, %d, and at most %d", *e.Block, t.cfg.Scale, 1<<16)
	case e.Scope != "" && e.Scope != "local" && e.Scope != "global":
		return fmt.Errorf("hash_id_scope is %q, want local or global", e.Scope)
	case len(e.Requests) == 0:
		return errors.New("requests is missing or empty")
	}
	if err := checkName("id", e.ID); err != nil {
		return err
	}
	s := recordedSession{name: e.ID, seed: t.cfg.Seed, block: *e.Block}
	if e.Scope != "global" {
		s.seed += uint64(len(t.sessions)+1) << 32 // seeds are small numbers, so that sessions differ
	}
	before := t.requests
	if err := t.fill(&s, e.Requests, "requests"); err != nil || len(s.requests) == 0 {
		return err
	}
	n := t.requests - before
	if t.most = max(t.most, n); len(t.sessions) == 0 || n < t.fewest {
		t.fewest = n
	}
	t.sessions = append(t.sessions, s)
	return nil
}

// checkName refuses names that can't be sent in a header.
func checkName(field, name string) error {
	if len(name) < 1 || len(name) > 128 || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
		return fmt.Errorf("%s is %.200q, want 1 to 128 printable characters of ASCII", field, name)
	}
	return nil
}

// fill appends entries to a session. at names them in errors.
func (t *agentTrace) fill(s *recordedSession, entries []agentEntry, at string) error {
	var last []uint64           // ids of the request before
	var early []recordedSession // sub-agents before the first request
	var before *agentEntry
	for i := range entries {
		e, at := &entries[i], fmt.Sprintf("%s[%d]", at, i)
		if e.Type == "subagent" {
			a := recordedSession{name: fmt.Sprintf("%s/%s", s.name, e.AgentID), seed: s.seed, block: s.block}
			if e.AgentID == "" {
				a.name = fmt.Sprintf("%s/%d", s.name, i)
			}
			if err := errors.Join(checkName(at+".agent_id with the names before it", a.name), t.fill(&a, e.Requests, at+".requests")); err != nil {
				return err
			}
			switch n := len(s.requests); {
			case len(a.requests) == 0:
			case n == 0:
				early = append(early, a)
			default:
				s.requests[n-1].agents = append(s.requests[n-1].agents, a)
			}
			continue
		}
		if err := e.validate(s.block); err != nil {
			return fmt.Errorf("%s.%w", at, err)
		}
		pause := e.pause(before)
		before = e
		if t.cfg.InputTokens > 0 && *e.In > t.cfg.InputTokens {
			t.tooLong++
			continue
		}
		if t.requests == MaxArrivals {
			return fmt.Errorf("%s: more than %d requests", at, MaxArrivals)
		}
		r := recordedRequest{number: t.requests, think: t.cfg.pause(pause), in: *e.In, out: *e.Out}
		for r.same < min(len(last), len(e.HashIDs)) && last[r.same] == e.HashIDs[r.same] {
			r.same++
		}
		r.ids = append([]uint64(nil), e.HashIDs[r.same:]...)
		r.agents, early = early, nil
		s.requests = append(s.requests, r)
		last = e.HashIDs
		t.requests++
	}
	return nil
}

// validate returns the first fault of a request; the error begins with the field.
func (e *agentEntry) validate(block int) error {
	switch {
	case e.Type != "n" && e.Type != "s":
		return fmt.Errorf("type is %q, want n, s or subagent", e.Type)
	case e.In == nil || e.Out == nil:
		return errors.New("in and out: one is missing")
	case *e.In < 1 || *e.In > MaxLength:
		return fmt.Errorf("in is %d, want 1 to %d", *e.In, MaxLength)
	case *e.Out < 0 || *e.Out > MaxLength:
		return fmt.Errorf("out is %d, want 0 to %d", *e.Out, MaxLength)
	case len(e.HashIDs) > kv.CeilPages(*e.In, block):
		return fmt.Errorf("hash_ids has %d numbers, want at most %d for %d tokens in blocks of %d", len(e.HashIDs), kv.CeilPages(*e.In, block), *e.In, block)
	}
	for _, f := range []struct {
		name  string
		value *float64
	}{{"t", e.T}, {"think_time", e.ThinkTime}, {"api_time", e.APITime}} {
		if f.value != nil && !(*f.value >= 0 && *f.value <= MaxTraceSpan.Seconds()) {
			return fmt.Errorf("%s is %v, want 0 to %v seconds", f.name, *f.value, MaxTraceSpan.Seconds())
		}
	}
	return nil
}

// pause returns the time in seconds between the answer to the request before and e; 0 if there is
// none before, or if the file does not say.
func (e *agentEntry) pause(before *agentEntry) float64 {
	switch {
	case e.ThinkTime != nil:
		return *e.ThinkTime
	case before == nil || before.T == nil || e.T == nil:
		return 0
	case before.APITime == nil:
		return max(0, *e.T-*before.T)
	}
	return max(0, *e.T-*before.T-*before.APITime)
}

func (t *agentTrace) Sessions() int { return len(t.sessions) }

func (t *agentTrace) Requests() (fewest, most int) { return t.fewest, t.most }

// Total returns the number of requests of all sessions.
func (t *agentTrace) Total() int { return t.requests }

func (t *agentTrace) String() string {
	left := ""
	if t.tooLong > 0 {
		left = fmt.Sprintf(" (%d of more than %d tokens left out)", t.tooLong, t.cfg.InputTokens)
	}
	return fmt.Sprintf("trace of agents: %d requests%s in %d sessions of %s, speedup %g, scale 1/%d, of %v",
		t.requests, left, len(t.sessions), t.name, t.cfg.Speedup, t.cfg.Scale, t.cfg.Vocabulary)
}

func (t *agentTrace) Session(i int) Session { return t.session(&t.sessions[i]) }

func (t *agentTrace) session(s *recordedSession) Session {
	out := Session{Name: s.name}
	var ids []uint64
	for i := range s.requests {
		r := &s.requests[i]
		ids = append(ids[:r.same:r.same], r.ids...)
		turn := Turn{User: t.prompt(s, r, ids), Whole: true, OutputTokens: max(1, kv.CeilPages(r.out, t.cfg.Scale)), Think: r.think}
		for j := range r.agents {
			turn.Agents = append(turn.Agents, t.session(&r.agents[j]))
		}
		out.Turns = append(out.Turns, turn)
	}
	return out
}

// prompt makes up the prompt of a request with these blocks.
func (t *agentTrace) prompt(s *recordedSession, r *recordedRequest, ids []uint64) Segment {
	left := kv.CeilPages(r.in, t.cfg.Scale)
	var p Segment
	for _, id := range ids {
		n := min(left, s.block/t.cfg.Scale)
		t.cfg.extend(&p, rand.New(rand.NewPCG(s.seed, blockStream+id)), n)
		left -= n
	}
	t.cfg.extend(&p, rand.New(rand.NewPCG(t.cfg.Seed, promptStream+uint64(r.number))), left)
	return p
}
