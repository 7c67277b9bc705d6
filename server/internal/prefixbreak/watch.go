package prefixbreak

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/coppice-llm/coppice/internal/budget"
	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
)

// Cause says why a prefix broke.
type Cause uint8

// Values of Cause.
const (
	Other     Cause = iota
	Nonce           // a number or identifier that is made anew for each request
	Timestamp       // a date or a time
	ToolOrder       // the same tools in another order
	Tools           // other tools
	Truncated       // messages were dropped from the front or the middle
	causes
)

var names = enum.New[Cause]("prefixbreak", "cause", "other", "nonce", "timestamp", "tool-order", "tools", "truncated")

// String returns the cause in words for headers, logs and labels: "tool-order".
func (c Cause) String() string { return names.Name(c) }

// Causes returns all causes.
func Causes() []Cause {
	all := make([]Cause, causes)
	for i := range all {
		all[i] = Cause(i)
	}
	return all
}

// Key says where a turn belongs. Turns with different tenants or salts are never compared.
type Key struct {
	Tenant, Salt string
	// Session is the name of the session; "": turns are recognised by their messages.
	Session string
}

// Break describes how a turn broke the prefix of the turn before.
type Break struct {
	Cause Cause
	// Message is the index of the first message that differs; -1: the tools differ.
	Message int
	// Token is the number of tokens that both prompts begin with, and Cost the number of the tokens of the last prompt
	// after them. Known is false, and both are 0, if the tokens of the last prompt are not kept.
	Token, Cost int
	Known       bool
	Was, Is     string // the word that differs, in the last prompt and in this one; "" if unknown
	// First says that this session has not broken its prefix for this cause before.
	First bool

	old []kv.Token
	was *record
}

// String returns the break for a header, without its texts: "nonce at token 40, cost 5210".
func (b *Break) String() string {
	if !b.Known {
		return b.Cause.String() + " at message " + strconv.Itoa(b.Message)
	}
	return fmt.Sprintf("%s at token %d, cost %d", b.Cause, b.Token, b.Cost)
}

// Config bounds a Watch.
type Config struct {
	Sessions int // that are remembered at most
	Bytes    int // of their turns and tokens
	// Memory is charged with these bytes. nil: they are not charged.
	Memory *budget.Budget
}

// Watch remembers the last turns of sessions.
type Watch struct {
	cfg Config

	mu      sync.Mutex
	account budget.Account
	bytes   int
	count   int
	groups  map[Key]*group
	oldest  record // head of the list of records, the oldest first
}

// group has the turns of a named session, of which there is one for each branch, or all turns without a name.
type group struct {
	last map[uint64][]*record // by the last message
	// known counts the beginnings of all turns, by Turn.chains.
	known map[uint64]int
	whole map[uint64]*record // by all that the turn has
}

// record is the last turn of a session, or of a branch of it.
type record struct {
	key        Key
	turn       *Turn
	tokens     []kv.Token // of its prompt
	told       [causes]bool
	size       int
	prev, next *record // nil once it is removed
}

// candidates bounds the turns that a turn is compared with, per message.
const candidates = 8

// New returns an empty Watch.
func New(cfg Config) *Watch {
	w := &Watch{cfg: cfg, groups: map[Key]*group{}}
	w.oldest.prev, w.oldest.next = &w.oldest, &w.oldest
	return w
}

// Check compares a turn with the last one of its session. It returns nil if the turn does not break the prefix. The
// caller calls [Watch.Locate] with the tokens of a turn that does.
func (w *Watch) Check(key Key, t *Turn) *Break {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.groups[key]
	if g == nil || len(t.messages) == 0 || g.continues(t) {
		return nil
	}
	r, c := g.find(t, key.Session != "")
	if r == nil {
		return nil
	}
	b := &Break{Message: c.from, was: r, old: r.tokens}
	switch {
	case c.tools && reordered(r.turn, t):
		b.Cause, b.Message = ToolOrder, -1
	case c.tools:
		b.Cause, b.Message = Tools, -1
	case c.oldTo > c.newTo:
		b.Cause = Truncated
	}
	return b
}

// continues reports whether the prompt that the last answer in t was given to has been seen as it is, or t itself.
func (g *group) continues(t *Turn) bool {
	i := len(t.messages) - 1
	for i > 0 && !t.messages[i].assistant {
		i--
	}
	return i > 0 && g.known[t.chains[i]] > 0 || g.known[t.whole()] > 0
}

// find returns the turn that t follows with a change, and the change.
func (g *group) find(t *Turn, sure bool) (best *record, how change) {
	for i := len(t.messages) - 1; i >= 0 && best == nil; i-- {
		if !sure && !answered(t, i) {
			continue
		}
		for _, r := range g.last[t.messages[i].hash] {
			if c, ok := follow(r.turn, t, sure); ok && (best == nil || c.from > how.from) {
				best, how = r, c
			}
		}
	}
	return best, how
}

// Locate finds where the prompt with these tokens breaks the last one, and why if the messages do not show it. decode
// returns the text of tokens.
func (w *Watch) Locate(b *Break, tokens []kv.Token, decode func([]kv.Token) string) {
	old := b.old
	if len(old) > 0 {
		at := 0
		for at < min(len(old), len(tokens)) && old[at] == tokens[at] {
			at++
		}
		b.Known, b.Token, b.Cost = true, at, len(old)-at
		const before, after = 32, 64 // tokens
		lo := max(at-before, 0)
		was, is, cause := parted(decode(old[lo:min(at+after, len(old))]), decode(tokens[lo:min(at+after, len(tokens))]))
		b.Was, b.Is = was, is
		if b.Cause == Other {
			b.Cause = cause
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	b.First = !b.was.told[b.Cause]
	b.was.told[b.Cause] = true
}

// Keep remembers a turn and the tokens of its prompt as the last one of its session. b is the result of Check, or nil.
// It keeps a copy of tokens.
func (w *Watch) Keep(key Key, t *Turn, b *Break, tokens []kv.Token) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.groups[key]
	if len(t.messages) == 0 || g != nil && g.known[t.whole()] > 0 { // it is known as a beginning of another
		return
	}
	r := &record{key: key, turn: t}
	for _, old := range w.before(g, t, b) {
		for cause, told := range old.told {
			r.told[cause] = r.told[cause] || told
		}
		w.remove(old)
	}
	r.size = t.sizeOf() + 4*len(tokens) + len(key.Tenant) + len(key.Salt) + len(key.Session)
	if r.size > w.cfg.Bytes {
		return
	}
	for w.count >= w.cfg.Sessions || w.bytes+r.size > w.cfg.Bytes {
		w.evict()
	}
	if w.charge(r.size) {
		r.tokens = slices.Clone(tokens)
		w.add(r)
	}
}

// before returns the turns that t takes the place of: the one that it breaks, and those that it continues.
func (w *Watch) before(g *group, t *Turn, b *Break) (all []*record) {
	if b != nil && b.was.next != nil {
		all = append(all, b.was)
	}
	for i := 1; g != nil && i < len(t.chains); i++ {
		if r := g.whole[t.chains[i]]; r != nil && !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	return all
}

// charge counts n bytes more. It removes sessions while the memory for requests has no room.
func (w *Watch) charge(n int) bool {
	if w.cfg.Memory == nil {
		return true
	}
	for {
		var err error
		if w.bytes == 0 {
			w.account.Close()
			err = w.account.Extend(w.cfg.Memory, n)
		} else {
			err = w.account.Add(n)
		}
		switch {
		case err == nil:
			w.account.Shrink(w.bytes + n) // an account takes more at a time
			return true
		case w.count == 0:
			return false
		}
		w.evict()
	}
}

// evict forgets the oldest turn. If a session lost one of its branches and kept others, a turn of that branch would
// seem to follow another one.
func (w *Watch) evict() {
	r := w.oldest.next
	key := r.key
	if w.remove(r); key.Session == "" {
		return
	}
	if g := w.groups[key]; g != nil {
		for _, other := range slices.Collect(maps.Values(g.whole)) {
			w.remove(other)
		}
	}
}

// add puts r, whose bytes are charged, into its group.
func (w *Watch) add(r *record) {
	w.bytes += r.size
	w.count++
	r.prev, r.next = w.oldest.prev, &w.oldest
	r.prev.next, r.next.prev = r, r
	g := w.groups[r.key]
	if g == nil {
		g = &group{last: map[uint64][]*record{}, known: map[uint64]int{}, whole: map[uint64]*record{}}
		w.groups[r.key] = g
	}
	g.whole[r.turn.whole()] = r
	for _, h := range r.turn.chains[1:] {
		g.known[h]++
	}
	all := append(g.last[r.turn.last()], r)
	if len(all) > candidates {
		all = slices.Clone(all[1:])
	}
	g.last[r.turn.last()] = all
}

func (w *Watch) remove(r *record) {
	r.prev.next, r.next.prev = r.next, r.prev
	r.prev, r.next = nil, nil
	w.count--
	if w.bytes -= r.size; w.cfg.Memory != nil {
		w.account.Shrink(w.bytes)
	}
	g := w.groups[r.key]
	delete(g.whole, r.turn.whole())
	for _, h := range r.turn.chains[1:] {
		if g.known[h]--; g.known[h] == 0 {
			delete(g.known, h)
		}
	}
	last := r.turn.last()
	if i := slices.Index(g.last[last], r); i >= 0 {
		g.last[last] = slices.Concat(g.last[last][:i], g.last[last][i+1:])
	}
	if len(g.last[last]) == 0 {
		delete(g.last, last)
	}
	if len(g.whole) == 0 {
		delete(w.groups, r.key)
	}
}

// Bytes returns the bytes of all that is remembered, which are charged.
func (w *Watch) Bytes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bytes
}

// Close forgets all sessions and gives their memory back.
func (w *Watch) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.count > 0 {
		w.evict()
	}
	w.account.Close()
}
