package coppice

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Parked describes what a Park has kept.
type Parked struct {
	Tokens int     // the first ones whose KV is in Tier, in whole pages; the others are computed again
	Tier   kv.Tier // the fastest that outlives the process, or host memory
}

// ParkPrefix writes the KV of a prefix to the fastest tier that outlives the process, or to host memory if there is none, and frees
// those of its pages on the device that nothing else uses. It returns when all of it is written: a request with the
// prefix fetches it, also after the process was killed. KV that no tier has is left out. If ctx ends first,
// the prefix stays on the device. Errors: ErrNoTier, ErrParkFailed if the tier has no room or fails, ErrNoCache, ErrQueueFull.
func (n *Node) ParkPrefix(ctx context.Context, ns kv.Namespace, tokens []kv.Token) (Parked, error) {
	return n.park(ctx, ns, slices.Clone(tokens), 0)
}

func (n *Node) park(ctx context.Context, ns kv.Namespace, tokens []kv.Token, publicTokens int) (Parked, error) {
	p, err := n.sys.Park(ctx, ns, tokens, publicTokens)
	return Parked{p.Tokens, p.Tier}, public(err)
}

// Park moves the session's KV to a lower tier, off the device, as ParkPrefix does, and keeps the session's
// tokens under its name. When it returns, the session outlives the process if the node has a disk tier: ResumeSession
// of another process continues it with the same bits. Without a disk, names live as long as the node. What the session shares with
// others stays on the device. The next turn fetches the KV, whether Resume was called or not. The tier drops what
// was not used for longest if it has no room, which is then computed again. Errors: those of ParkPrefix, ErrSessionBusy,
// ErrSessionReleased, and those of writing the name; the session can go on after each.
func (s *Session) Park(ctx context.Context) (Parked, error) {
	t := &turnOf{s: s}
	ctx, err := t.begin(ctx, nil)
	if err != nil {
		return Parked{}, err
	}
	defer t.end(nil)
	if s.pinned {
		_ = s.node.UnpinSession(ctx, s.ref()) // fails if the node has forgotten the session
		s.pinned = false
	}
	own := &s.shared.opts.Chat.Request
	p := Parked{}
	if n := t.base.Len(); n > 1 { // the KV of the last token was never computed
		if p, err = s.node.park(ctx, own.Namespace, t.base.list(0)[:n-1], own.PublicTokens); err != nil {
			return Parked{}, err
		}
	}
	if err := s.node.names.put(s.node.sys.Notes(), t.parked()); err != nil {
		return Parked{}, err
	}
	s.mu.Lock()
	s.noted = true
	s.mu.Unlock()
	return p, nil
}

// Resume begins to fetch what Park has put away, as Node.ExpectSession does, so that it is on the device before the
// next turn. It does not wait: a turn that comes meanwhile waits for the rest. Errors: ErrSessionReleased, ErrNoCache.
func (s *Session) Resume(ctx context.Context) error {
	s.mu.Lock()
	if s.state == released {
		s.mu.Unlock()
		return ErrSessionReleased
	}
	past := s.past
	s.mu.Unlock()
	err := s.node.ExpectSession(ctx, s.ref(), 0)
	if errors.Is(err, ErrNoSession) && past.Len() > 1 { // forgotten, or of an earlier process
		if err = s.node.sys.RestoreSession(ctx, s.ref(), past.list(0), s.shared.opts.Chat.Request.PublicTokens); err == nil {
			return s.node.ExpectSession(ctx, s.ref(), 0)
		}
	}
	if errors.Is(err, ErrNoSession) {
		return nil // there is nothing to fetch
	}
	return public(err)
}

// ResumeSession returns the session that was parked under o.Name, for the tenant and the namespace of o.Chat.Request, by this node or by
// one before it with the same disk tier, and begins to fetch its KV. Tokens, appended messages and what is left of
// the budget are those at the time of Park; all else is as o says. The name stays until Release. It fails with ErrNoSession if there is no such name.
func (n *Node) ResumeSession(ctx context.Context, o SessionOptions) (*Session, error) {
	s, err := n.NewSession(o)
	if err != nil {
		return nil, err
	}
	p, err := n.names.get(n.sys.Notes(), s.ref())
	if err != nil {
		return nil, public(err)
	}
	s.past, s.lead, s.stopped, s.calls, s.forks, s.noted = (*history)(nil).add(p.tokens()), p.Lead, p.Stopped, p.Calls, p.Forks, true
	for _, x := range p.Pending {
		s.pending = append(s.pending, segment{x.Messages, x.Tokens})
	}
	if p.Limited {
		s.shared.purse.limited, s.shared.purse.left = true, p.Left
	}
	return s, s.Resume(ctx)
}

// ParkSession parks what the last turn of a session left, as Session.Park does for a Session: a request that continues it fetches the KV, and
// ResumeSession makes a Session of it. The tokens are kept under the session's name until ReleaseSession; ExpectSession knows them,
// also after a restart. It ends the session's pin. Errors: those of ParkPrefix, ErrNoSession, ErrInvalid for a session with media.
func (n *Node) ParkSession(ctx context.Context, session SessionRef) (p Parked, err error) {
	publicTokens := 0
	var tokens []kv.Token
	err = do(ctx, n, func(core *scheduler.Scheduler, _ time.Duration) (err error) {
		if tokens, publicTokens, err = core.SessionTokens(session); err != nil {
			return err
		}
		return core.UnpinSession(session)
	})
	if err != nil {
		return Parked{}, err
	}
	last := len(tokens) - 1 // its KV was never computed
	if last > 0 {
		if p, err = n.park(ctx, session.Namespace, tokens[:last], publicTokens); err != nil {
			return Parked{}, err
		}
	}
	note := parkNote{Ref: session, Public: publicTokens, Stopped: n.sys.Stops(tokens[last])}
	note.setTokens(tokens)
	return p, n.names.put(n.sys.Notes(), &note)
}

// restore makes a parked session known to the scheduler again, after a restart or when it was forgotten. It fails with ErrNoSession if
// no session is parked under the name.
func (n *Node) restore(ctx context.Context, session SessionRef) error {
	p, err := n.names.get(n.sys.Notes(), session)
	if err == nil {
		err = n.sys.RestoreSession(ctx, session, p.tokens(), p.Public)
	}
	return public(err)
}

// ParkedSession is a session under whose name tokens are kept.
type ParkedSession struct {
	SessionRef
	Tokens int // with the last one, whose KV was never computed
}

// ParkedSessions lists the sessions that ResumeSession can continue, in any order. Its first call reads the names
// of all of them.
func (n *Node) ParkedSessions() ([]ParkedSession, error) {
	all, err := n.names.all(n.sys.Notes())
	return all, public(err)
}

// parkNote is the note of a parked session.
type parkNote struct {
	Ref     SessionRef
	Tokens  []byte // little endian, 4 bytes each
	Public  int    `json:",omitempty"` // Request.PublicTokens
	Pending []parkedSegment
	Lead    []chat.Message
	Stopped bool
	Calls   int
	Forks   int
	Left    int
	Limited bool
}

type parkedSegment struct {
	Messages []chat.Message
	Tokens   []kv.Token
}

// parked returns the note of the session, which is busy.
func (t *turnOf) parked() *parkNote {
	p := &parkNote{Ref: t.s.ref(), Lead: t.lead, Stopped: t.stopped, Public: t.s.shared.opts.Chat.Request.PublicTokens}
	t.s.mu.Lock()
	p.Calls, p.Forks = t.s.calls, t.s.forks
	t.s.mu.Unlock()
	p.setTokens(t.base.list(0))
	for _, x := range t.input {
		p.Pending = append(p.Pending, parkedSegment{x.messages, x.tokens})
	}
	p.Left, p.Limited = t.s.Left()
	return p
}

func (p *parkNote) setTokens(tokens []kv.Token) {
	p.Tokens = make([]byte, 0, 4*len(tokens))
	for _, token := range tokens {
		p.Tokens = binary.LittleEndian.AppendUint32(p.Tokens, uint32(token))
	}
}

func (p *parkNote) tokens() []kv.Token {
	all := make([]kv.Token, len(p.Tokens)/4)
	for i := range all {
		all[i] = kv.Token(binary.LittleEndian.Uint32(p.Tokens[4*i:]))
	}
	return all
}
