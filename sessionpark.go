package coppice

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
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
	note, err := json.Marshal(t.parked())
	if err == nil {
		err = s.node.names.put(s.node.sys.Notes(), s.ref(), note)
	}
	if err != nil {
		return Parked{}, public(err)
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
	note, err := n.names.get(n.sys.Notes(), s.ref())
	if errors.Is(err, mempool.ErrMiss) {
		return nil, fmt.Errorf("%w: %q is not parked", ErrNoSession, o.Name)
	}
	var p parkedSession
	if err == nil {
		err = json.Unmarshal(note, &p)
	}
	if err == nil && (p.Ref != s.ref() || len(p.Tokens)%4 != 0) {
		err = fmt.Errorf("%w: the note of session %q", mempool.ErrCorrupt, o.Name)
	}
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

// ParkedSessions lists the sessions that ResumeSession can continue, in any order.
func (n *Node) ParkedSessions() (all []SessionRef, err error) {
	err = n.names.each(n.sys.Notes(), func(note []byte) bool {
		var p parkedSession
		if json.Unmarshal(note, &p) == nil {
			all = append(all, p.Ref)
		}
		return true
	})
	return all, public(err)
}

// parkedSession is the note of a parked session.
type parkedSession struct {
	Ref     SessionRef
	Tokens  []byte // little endian, 4 bytes each
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
func (t *turnOf) parked() parkedSession {
	p := parkedSession{Ref: t.s.ref(), Lead: t.lead, Stopped: t.stopped}
	t.s.mu.Lock()
	p.Calls, p.Forks = t.s.calls, t.s.forks
	t.s.mu.Unlock()
	for _, token := range t.base.list(0) {
		p.Tokens = binary.LittleEndian.AppendUint32(p.Tokens, uint32(token))
	}
	for _, x := range t.input {
		p.Pending = append(p.Pending, parkedSegment{x.messages, x.tokens})
	}
	p.Left, p.Limited = t.s.Left()
	return p
}

func (p *parkedSession) tokens() []kv.Token {
	all := make([]kv.Token, len(p.Tokens)/4)
	for i := range all {
		all[i] = kv.Token(binary.LittleEndian.Uint32(p.Tokens[4*i:]))
	}
	return all
}

// names keeps the notes of parked sessions: in a tier, or where none outlives the process, in memory.
type names struct {
	mu    sync.Mutex
	notes map[string][]byte
}

// maxNames bounds the notes in memory.
const maxNames = 1 << 12

// noteOf returns the name of a session's note. It tells tenants and namespaces apart.
func noteOf(r *SessionRef) string {
	return fmt.Sprintf("session %q %q %q %q %q", r.Namespace.Model, r.Namespace.LoRA, r.Namespace.Salt, r.Tenant, r.Name)
}

func (n *names) put(in mempool.Notes, ref SessionRef, note []byte) error {
	name := noteOf(&ref)
	if in != nil {
		return in.PutNote(name, note)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, there := n.notes[name]; !there && len(n.notes) >= maxNames {
		return fmt.Errorf("%w: %d sessions are parked", mempool.ErrFull, len(n.notes))
	}
	if n.notes == nil {
		n.notes = map[string][]byte{}
	}
	n.notes[name] = note
	return nil
}

func (n *names) get(in mempool.Notes, ref SessionRef) ([]byte, error) {
	name := noteOf(&ref)
	if in != nil {
		return in.Note(name)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if note, there := n.notes[name]; there {
		return note, nil
	}
	return nil, mempool.ErrMiss
}

func (n *names) drop(in mempool.Notes, ref SessionRef) error {
	name := noteOf(&ref)
	if in != nil {
		return in.DropNote(name)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.notes, name)
	return nil
}

func (n *names) each(in mempool.Notes, yield func(note []byte) bool) error {
	if in != nil {
		return in.EachNote(yield)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, note := range n.notes {
		if !yield(note) {
			break
		}
	}
	return nil
}
