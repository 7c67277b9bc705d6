package coppice

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Errors of sessions.
var (
	ErrSessionBusy     = errors.New("coppice: a turn of the session is running")
	ErrSessionReleased = errors.New("coppice: the session was released")
	ErrSessionBudget   = errors.New("coppice: the budget of the session and its forks is used up")
	ErrSessionTurns    = errors.New("coppice: the model still calls tools after the most turns of Run")
)

// SessionOptions configures a Session. The zero value works.
type SessionOptions struct {
	// Name identifies the session within its namespace and tenant: it is the Session of its requests, and Park keeps
	// its KV under it. At most MaxSessionName bytes. Default: a random name.
	Name string
	// Chat has what all turns have in common: in Request the tenant, namespace, class and priority, and the limits,
	// sampling and so on of the turns that do not bring their own; in Template and Controls how messages
	// are rendered. Request.Tokens and Request.Prompt have no effect.
	Chat ChatOptions
	// Tools are the functions that Run lets the model call: a Set of package tool. The first messages declare them, if
	// Chat.Template.Tools is empty. Default: none.
	Tools Tools
	// MustCall makes the first turn of each Run call a tool. Default: the model decides.
	MustCall bool
	// MaxTurns bounds the turns of one Run. Default: 32.
	MaxTurns int
	// Budget bounds the tokens that the session and all its forks add, input and output together, whether they are
	// cached or not. A turn reserves its MaxTokens, and gives back what it did not use; without
	// MaxTokens it reserves all that is left. Default: no bound.
	Budget int
	// Pin keeps the KV of the session and of its forks on the device between their turns, as far as
	// Scheduler.PinnedTokens has room: see Node.PinSession. Default: it can be evicted like that of other requests.
	Pin bool
}

// MaxSessionName is the most bytes of a session's name. Forks add to the name of their parent.
const MaxSessionName = scheduler.MaxSessionName - 56

// Session is a conversation that remembers its tokens: a turn computes what is new. It can be forked at
// any token, and a program can have as many sessions as it has memory for their tokens: they hold no slot of the
// device. An agent is a goroutine with a Session.
//
// A Session runs one turn at a time; while it does, calls that change the session fail with ErrSessionBusy. Fork,
// Release, Explain and the methods that read may be called at any time from any goroutine.
//
// What a session does, requests do: a turn is a Request whose Tokens are those of the session. A turn that
// ends with Stop or Length becomes part of the session. Any other turn leaves the session as it was before: it can
// be tried again.
type Session struct {
	node   *Node
	shared *sessionShared
	name   string

	mu      sync.Mutex
	state   sessionState
	stop    context.CancelCauseFunc // of the running turn
	forks   int                     // children so far, for their names
	past    *history
	pending []segment      // appended since the last turn, never changed in place
	lead    []chat.Message // the system messages at the beginning
	stopped bool           // the last token of past is a stop token
	calls   int            // of tools so far, for their ids
	ran     bool           // a turn was tried
	noted   bool           // Park has kept its name
	pinned  bool           // see SessionOptions.Pin; belongs to the running turn
}

// sessionShared has the parts that a session and its forks have in common.
type sessionShared struct {
	opts    SessionOptions
	calling Calling // nil without tools
	purse   purse
}

// sessionState is the state of a session.
type sessionState uint8

const (
	idle sessionState = iota
	busy
	released
)

// segment is a part of a session that is not encoded yet: messages or tokens.
type segment struct {
	messages []chat.Message
	tokens   []kv.Token
}

// NewSession begins an empty session. It fails with ErrInvalid if an option has an invalid value.
func (n *Node) NewSession(o SessionOptions) (*Session, error) {
	switch {
	case len(o.Name) > MaxSessionName:
		return nil, fmt.Errorf("%w: the session's name has %d bytes, at most %d", ErrInvalid, len(o.Name), MaxSessionName)
	case o.Budget < 0 || o.MaxTurns < 0:
		return nil, fmt.Errorf("%w: Budget is %d and MaxTurns %d, want 0 (the default) or more", ErrInvalid, o.Budget, o.MaxTurns)
	}
	if o.Name == "" {
		o.Name = rand.Text()
	}
	if o.MaxTurns == 0 {
		o.MaxTurns = 32
	}
	s := &sessionShared{opts: o, purse: purse{limited: o.Budget > 0, left: o.Budget}}
	if o.Tools != nil {
		if err := s.setTools(n); err != nil {
			return nil, err
		}
	}
	return &Session{node: n, shared: s, name: o.Name}, nil
}

// ref names the session for the methods of Node.
func (s *Session) ref() SessionRef {
	own := &s.shared.opts.Chat.Request
	return SessionRef{Namespace: own.Namespace, Tenant: own.Tenant, Name: s.name}
}

// Name returns the session's name. A fork has the name of its parent with a number: "agent/1";
// where that would be too long, a random one.
func (s *Session) Name() string { return s.name }

// Request returns SessionOptions.Chat.Request, for turns that differ from it in a field.
func (s *Session) Request() Request { return s.shared.opts.Chat.Request }

// Tokens returns a copy of the session's tokens: the prompts and outputs of all its turns. Those appended since
// the last turn are not among them.
func (s *Session) Tokens() []kv.Token { return s.now().list(0) }

// Len returns the number of Tokens.
func (s *Session) Len() int { return s.now().Len() }

func (s *Session) now() *history {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.past
}

// Left returns the tokens that are left of SessionOptions.Budget, for the session and its forks together. It
// returns false if there is no bound.
func (s *Session) Left() (tokens int, limited bool) { return s.shared.purse.rest() }

// Append adds messages, which the next turn renders and encodes. The first messages may begin with a
// system message. Messages after an answer continue the conversation: its tokens stay as they are, whatever the
// chat template would do with old answers. Errors: ErrSessionBusy, ErrSessionReleased.
func (s *Session) Append(messages ...chat.Message) error {
	return s.append(segment{messages: slices.Clone(messages)})
}

// AppendTokens adds tokens. Messages appended later continue them as they continue an answer. Errors:
// ErrSessionBusy, ErrSessionReleased.
func (s *Session) AppendTokens(tokens ...kv.Token) error {
	return s.append(segment{tokens: slices.Clone(tokens)})
}

func (s *Session) append(x segment) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.available(); err != nil {
		return err
	}
	s.pending = appendSegment(s.pending, x)
	return nil
}

// appendSegment returns a new list of all and x. Messages that follow messages are rendered with them.
func appendSegment(all []segment, x segment) []segment {
	last := len(all) - 1
	switch {
	case len(x.messages)+len(x.tokens) == 0:
		return all
	case last >= 0 && len(x.messages) > 0 && len(all[last].messages) > 0:
		return append(slices.Clone(all[:last]), segment{messages: slices.Concat(all[last].messages, x.messages)})
	}
	return append(slices.Clip(all), x)
}

// available returns why the session can't begin anything now, or nil. The caller holds mu.
func (s *Session) available() error {
	switch s.state {
	case busy:
		return ErrSessionBusy
	case released:
		return ErrSessionReleased
	}
	return nil
}

// Fork returns a session that continues this one on its own, from its last turn and with all that was appended
// since. It shares the tokens, and on the device the KV, of its parent; budget, tenant, priority and all other options
// are those of the parent. During a turn, Fork takes the session as it was before that turn. It fails with
// ErrSessionReleased. Cost: O(1), without a message to the scheduler.
func (s *Session) Fork() (*Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == released {
		return nil, ErrSessionReleased
	}
	s.forks++
	name := s.name + "/" + strconv.Itoa(s.forks)
	if len(name) > scheduler.MaxSessionName { // a fork of a fork of a fork…
		name = rand.Text()
	}
	return &Session{
		node: s.node, shared: s.shared, name: name,
		past: s.past, pending: slices.Clip(s.pending), lead: s.lead, stopped: s.stopped, calls: s.calls,
	}, nil
}

// Release ends the session: it aborts a running turn with ErrSessionReleased, and says that the session takes no
// further turn, as Node.ReleaseSession does. It removes the name that Park has kept. Forks live on. A second call does nothing.
func (s *Session) Release() {
	s.mu.Lock()
	if s.state == released {
		s.mu.Unlock()
		return
	}
	s.state = released
	stop, ran, noted := s.stop, s.ran, s.noted
	s.past, s.pending, s.lead = nil, nil, nil
	s.mu.Unlock()
	if stop != nil {
		stop(ErrSessionReleased)
	}
	if noted {
		_, _ = s.node.names.drop(s.node.sys.Notes(), s.ref()) // a name that can't be removed can be resumed
	}
	if ran { // else the node knows nothing of it
		_ = s.node.ReleaseSession(context.Background(), s.ref()) // fails where the node forgot it, or has ended
	}
}

// Explain reports how much of the prompt of a next turn is cached in which tier, why not more, and what the turn
// would compute, as Node.Explain does. The prompt is that of a turn without further input.
func (s *Session) Explain(ctx context.Context) (scheduler.Explanation, error) {
	s.mu.Lock()
	if s.state == released {
		s.mu.Unlock()
		return scheduler.Explanation{}, ErrSessionReleased
	}
	t := &turnOf{s: s, base: s.past, input: s.pending, lead: s.lead, stopped: s.stopped}
	s.mu.Unlock()
	req := s.Request()
	if err := t.prompt(ctx, &req); err != nil {
		return scheduler.Explanation{}, err
	}
	return s.node.Explain(ctx, req)
}
