package scheduler

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler/internal/planted"
)

// ErrNoSession reports that no turn of a session has ended yet, or that the session was released or
// forgotten.
var ErrNoSession = errors.New("scheduler: unknown session")

// MaxSessionName bounds the name of a session, in bytes.
const MaxSessionName = 256

// maxSessions bounds the sessions that are remembered. When one more begins, the one that was not used
// for longest is forgotten: its KV stays in the cache, as that of requests without a name.
const maxSessions = 1 << 14

// sessionPoolShare bounds the tokens of last turns that sessions remember, as a multiple of the pool's
// tokens. A token takes 4 bytes here and thousands in the pool. Sessions beyond it keep their names, but
// nothing can be fetched, pinned or released for them until their next turn ends.
const sessionPoolShare = 4

// SessionRef names a session. Sessions of different tenants or namespaces are different, whatever their
// names.
type SessionRef struct {
	Namespace kv.Namespace
	Tenant    string
	Name      string // Request.Session, not empty
}

// validate returns an error if the name is empty or too long.
func (r *SessionRef) validate() error {
	if n := len(r.Name); n == 0 || n > MaxSessionName {
		return fmt.Errorf("%w: a session's name has %d bytes, want 1 to %d", ErrInvalid, n, MaxSessionName)
	}
	return nil
}

// sessionRef returns the session of a request. Its Name is empty if the request has none.
func (r *Request) sessionRef() SessionRef { return SessionRef{r.Namespace, r.Tenant, r.Session} }

// sessions remembers what the last turn of each session left, and the hints about its next one.
type sessions struct {
	info     int // tokens of the pool
	byRef    map[SessionRef]*session
	oldest   *session // ends of the list by last use
	newest   *session
	groups   map[string]uint8     // by class or tenant: see group
	tools    map[string]uint8     // by the names of tools: see AwaitTools
	tokens   int                  // sum of len(session.tokens)
	expected []*session           // with a turn that is expected, by the time of session.expect.due
	ids      radixcache.SessionID // the latest that was given
}

// session holds what one session has left. A turn is a request that names it.
type session struct {
	ref          SessionRef
	id           radixcache.SessionID
	older, newer *session
	turns        int // turns that have ended

	// The last turn that ended: its prompt and output, of which all but the last token may be cached.
	tokens []kv.Token
	public int
	media  []kv.Media

	pinned bool          // PinSession was called, and its time is not over
	until  time.Duration // the end of that pin; 0: none
	expect expectation
}

func newSessions(poolTokens int) sessions {
	return sessions{info: poolTokens, byRef: make(map[SessionRef]*session), groups: make(map[string]uint8), tools: make(map[string]uint8)}
}

// key returns the cache key of the session's last turn, without the last token, whose KV was never computed.
func (x *session) key() radixcache.Key {
	return radixcache.Key{Namespace: x.ref.Namespace, Tokens: x.tokens[:max(len(x.tokens)-1, 0)], PublicTokens: x.public, Media: x.media}
}

// find returns the session, or an error that wraps ErrInvalid or ErrNoSession.
func (ss *sessions) find(ref SessionRef) (*session, error) {
	if err := ref.validate(); err != nil {
		return nil, err
	}
	x := ss.byRef[ref]
	if x == nil {
		return nil, fmt.Errorf("%w: %q", ErrNoSession, ref.Name)
	}
	return x, nil
}

// use returns the session and makes it the most recently used one. It begins the session if it is new.
func (s *Scheduler) useSession(ref SessionRef) *session {
	ss := &s.sessions
	x := ss.byRef[ref]
	if x != nil {
		ss.unlink(x)
	} else {
		if len(ss.byRef) == maxSessions {
			s.forgetSession(ss.oldest)
		}
		ss.ids++
		x = &session{ref: ref, id: ss.ids}
		ss.byRef[ref] = x
	}
	x.older = ss.newest
	if x.older != nil {
		x.older.newer = x
	} else {
		ss.oldest = x
	}
	ss.newest = x
	return x
}

// unlink takes a session out of the list by last use.
func (ss *sessions) unlink(x *session) {
	if x.older != nil {
		x.older.newer = x.newer
	} else {
		ss.oldest = x.newer
	}
	if x.newer != nil {
		x.newer.older = x.older
	} else {
		ss.newest = x.older
	}
	x.older, x.newer = nil, nil
}

// forgetSession drops a session with its pin and its hints. What it has left stays in the cache.
func (s *Scheduler) forgetSession(x *session) {
	s.unpinSession(x)
	s.unexpect(x)
	s.sessions.remember(x, nil)
	s.sessions.unlink(x)
	delete(s.sessions.byRef, x.ref)
	s.cache.ForgetTurns(x.id)
}

// remember replaces the tokens of x's last turn. Where all sessions together then have too many, those not
// used for longest lose theirs.
func (ss *sessions) remember(x *session, tokens []kv.Token) {
	ss.tokens += len(tokens) - len(x.tokens)
	x.tokens = tokens
	for o := ss.oldest; o != nil && o != x && ss.tokens > sessionPoolShare*ss.info; o = o.newer {
		ss.tokens -= len(o.tokens)
		o.tokens, o.media, o.public = nil, nil, 0
	}
}

// turnBegins notes that a request has come, which may be a turn of a session.
func (s *Scheduler) turnBegins(now time.Duration, req *Request) {
	if req.Session == "" || s.cache == nil {
		return
	}
	if x := s.sessions.byRef[req.sessionRef()]; x != nil {
		s.cache.Tick(now)
		s.cache.BeginTurn(x.id)
	}
}

// maxGroups bounds the groups of requests whose pauses are learnt apart. Requests of further classes are of
// group 0, as those without a class and a tenant.
const maxGroups = 16

// group returns the number of a request's class, or of its tenant if it has none.
func (ss *sessions) group(req *Request) uint8 {
	name := cmp.Or(req.Class, req.Tenant)
	if name == "" {
		return 0
	}
	id, known := ss.groups[name]
	if !known && len(ss.groups) < maxGroups-1 {
		id = uint8(len(ss.groups) + 1)
		ss.groups[name] = id
	}
	return id
}

// turnEnds notes what q leaves, whose first tokens, as many as valid says, are in the cache now. Of several
// samples only the first one counts: the next turn can continue only one of them.
func (s *Scheduler) turnEnds(now time.Duration, q *sequence, valid int) {
	valid = q.wholeMedia(valid)
	if s.cache == nil || valid == 0 || q.table.shared != kv.CeilPages(valid, s.info.PageTokens) || s.prefixes.flushedSince(q) {
		return // not all of it is in the tree
	}
	turn := radixcache.Turn{Group: s.sessions.group(q.req)}
	tail := q.tokens[valid-valid%s.info.PageTokens : valid]
	s.cache.Tick(now)
	if q.req.Session == "" || q.sample != 0 {
		s.cache.EndTurn(q.table.pin, tail, turn)
		return
	}
	x := s.useSession(q.req.sessionRef())
	turn.Session = x.id
	s.cache.EndTurn(q.table.pin, tail, turn)
	x.turns++
	s.sessions.remember(x, q.tokens[:min(valid+1, len(q.tokens))])
	x.public, x.media = min(q.req.PublicTokens, q.prompt), q.req.Media
	if x.pinned {
		s.repinSession(now, x)
	}
}

// maxTools bounds the tools whose times are learnt apart, and maxToolNames the bytes of their names. All others
// have number 0.
const (
	maxTools     = 64
	maxToolNames = 256
)

// AwaitTools notes that the answer of a session's last turn calls tools, whose names are joined in tools: the next turn
// comes when they have run, and needs no user. The policy radixcache.Session learns for each tool how long that takes; other
// policies make no use of it. Call it between the end of the turn and the next one. Errors: ErrNoCache,
// ErrInvalid, ErrNoSession.
func (s *Scheduler) AwaitTools(ref SessionRef, tools string) error {
	if s.cache == nil {
		return ErrNoCache
	}
	x, err := s.sessions.find(ref)
	if err != nil {
		return err
	}
	id, known := s.sessions.tools[tools]
	if !known && len(s.sessions.tools) < maxTools-1 && len(tools) <= maxToolNames {
		id = uint8(len(s.sessions.tools) + 1)
		s.sessions.tools[tools] = id
	}
	s.cache.AwaitTools(x.id, id)
	s.metrics.ToolTurns++
	s.verify()
	return nil
}

// ReleaseSession forgets a session: it takes no further turn, or what it has left is not needed by one.
// It ends the session's pin and what was expected of it. Error: ErrNoCache, ErrInvalid, ErrNoSession.
func (s *Scheduler) ReleaseSession(ref SessionRef) error {
	if s.cache == nil {
		return ErrNoCache
	}
	x, err := s.sessions.find(ref)
	if err != nil {
		return err
	}
	if s.room.fault != planted.KeepReleased {
		s.cache.ReleaseTurns(x.id)
	}
	s.forgetSession(x)
	s.verify()
	return nil
}

// SessionTokens returns a copy of the tokens that the last turn of a session left, at least one; the KV of the last one was never computed.
// public is the Request.PublicTokens of that turn. Errors: ErrNoCache; ErrInvalid for a bad name, or if the session has media; ErrNoSession,
// also if the tokens were forgotten.
func (s *Scheduler) SessionTokens(ref SessionRef) (tokens []kv.Token, public int, err error) {
	if s.cache == nil {
		return nil, 0, ErrNoCache
	}
	x, err := s.sessions.find(ref)
	switch {
	case err != nil:
		return nil, 0, err
	case len(x.media) > 0:
		return nil, 0, fmt.Errorf("%w: session %q has media, and tokens alone do not name them", ErrInvalid, ref.Name)
	case len(x.tokens) == 0:
		return nil, 0, fmt.Errorf("%w: the tokens of %q are forgotten", ErrNoSession, ref.Name)
	}
	return slices.Clone(x.tokens), x.public, nil
}

// Remembers reports whether the tokens of a session's last turn are known.
func (s *Scheduler) Remembers(ref SessionRef) bool {
	x := s.sessions.byRef[ref]
	return x != nil && len(x.tokens) > 0
}

// PinSession keeps what the last turn of a session left in the cache for d, or until UnpinSession or
// ReleaseSession if d is 0. When a later turn ends, the pin moves to what that turn left, as far as
// Config.PinnedTokens allows; the time stays. Pinning again sets a new time. It returns the number of
// tokens pinned, in whole pages. Errors: those of PinPrefix, and ErrNoSession.
func (s *Scheduler) PinSession(now time.Duration, ref SessionRef, d time.Duration) (tokens int, err error) {
	if s.cache == nil {
		return 0, ErrNoCache
	}
	if d < 0 {
		return 0, fmt.Errorf("%w: a pin of %v, want 0 (no limit) or more", ErrInvalid, d)
	}
	x, err := s.sessions.find(ref)
	if err != nil {
		return 0, err
	}
	s.prefixes.expire(now)
	x.until = 0
	if d > 0 {
		x.until = max(now+d, 0) // as in PinPrefix
	}
	tokens, err = s.cache.PinSession(x.id, x.key(), x.until)
	x.pinned = err == nil
	s.room.keepQuotas()
	s.verify()
	return tokens, err
}

// UnpinSession ends the pin of a session. Errors: ErrNoCache, ErrInvalid, ErrNoSession.
func (s *Scheduler) UnpinSession(ref SessionRef) error {
	if s.cache == nil {
		return ErrNoCache
	}
	x, err := s.sessions.find(ref)
	if err != nil {
		return err
	}
	s.unpinSession(x)
	s.room.keepQuotas()
	s.verify()
	return nil
}

// unpinSession ends the session's pin.
func (s *Scheduler) unpinSession(x *session) {
	x.pinned = false
	s.cache.UnpinSession(x.id)
}

// repinSession moves the session's pin to its last turn, as far as the budget allows. A pin whose time is
// over ends.
func (s *Scheduler) repinSession(now time.Duration, x *session) {
	s.cache.UnpinSession(x.id)
	if x.pinned = x.until == 0 || x.until > now; !x.pinned {
		return
	}
	_, used := s.cache.PinnedPrefixes()
	key := x.key()
	key.Tokens = key.Tokens[:min(len(key.Tokens), s.cfg.PinnedTokens-used)]
	_, _ = s.cache.PinSession(x.id, key, x.until) // where there is nothing to pin, the next turn tries again
}
