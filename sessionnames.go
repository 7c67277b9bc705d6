package coppice

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/coppice-llm/coppice/mempool"
)

// Limits of the names of parked sessions, apart from the bytes that a tier's directory permits. A tenant with a name has at most a
// quarter of each, so that no tenant takes the share of all others.
const (
	maxNames     = 1 << 14
	maxNameBytes = 256 << 20
	tenantShare  = 4
)

// names keeps the notes of parked sessions: in a tier, or where none outlives the process, in memory.
type names struct {
	mu     sync.Mutex
	known  map[string]parkedName // by noteOf; nil until it is needed
	notes  map[string][]byte     // of those in memory
	totals map[string]nameTotals // by tenant
}

// parkedName holds the facts about a note that are known without reading it.
type parkedName struct {
	ParkedSession
	bytes int
}

// nameTotals counts the notes of a tenant.
type nameTotals struct{ names, bytes int }

// noteOf returns the name of a session's note. It tells tenants and namespaces apart.
func noteOf(r *SessionRef) string {
	return fmt.Sprintf("session %q %q %q %q %q", r.Namespace.Model, r.Namespace.LoRA, r.Namespace.Salt, r.Tenant, r.Name)
}

// load fills known with what earlier processes have left. The caller holds mu.
func (n *names) load(in mempool.Notes) error {
	if n.known != nil {
		return nil
	}
	n.known, n.notes, n.totals = map[string]parkedName{}, map[string][]byte{}, map[string]nameTotals{}
	if in == nil {
		return nil
	}
	err := in.EachNote(func(note []byte) bool {
		var p parkNote
		if json.Unmarshal(note, &p) == nil {
			n.count(noteOf(&p.Ref), parkedName{ParkedSession{p.Ref, len(p.Tokens) / 4}, len(note)})
		}
		return true
	})
	if err != nil {
		n.known = nil // try again
	}
	return err
}

// count sets what is known of a note. Without bytes the note is gone.
func (n *names) count(name string, x parkedName) {
	old := n.known[name]
	if old.bytes > 0 {
		t := n.totals[old.Tenant]
		n.totals[old.Tenant] = nameTotals{t.names - 1, t.bytes - old.bytes}
		delete(n.known, name)
	}
	if x.bytes > 0 {
		t := n.totals[x.Tenant]
		n.totals[x.Tenant] = nameTotals{t.names + 1, t.bytes + x.bytes}
		n.known[name] = x
	}
}

// room returns an error if the note has no room beside the others.
func (n *names) room(name string, x parkedName) error {
	t, most := n.totals[x.Tenant], nameTotals{maxNames, maxNameBytes}
	if x.Tenant != "" {
		most = nameTotals{maxNames / tenantShare, maxNameBytes / tenantShare}
	}
	old := n.known[name].bytes
	if old == 0 {
		t.names++
	}
	if all := t.bytes + x.bytes - old; t.names > most.names || all > most.bytes {
		return fmt.Errorf("%d parked sessions with %d bytes of tokens, at most %d with %d: release some", t.names, all, most.names, most.bytes)
	}
	if old == 0 && len(n.known) >= maxNames {
		return fmt.Errorf("%d sessions are parked, at most %d: release some", len(n.known)+1, maxNames)
	}
	return nil
}

// put keeps a note under the name of its session. It fails with ErrParkFailed.
func (n *names) put(in mempool.Notes, p *parkNote) error {
	note, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrParkFailed, err)
	}
	name, x := noteOf(&p.Ref), parkedName{ParkedSession{p.Ref, len(p.Tokens) / 4}, len(note)}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err = n.load(in); err == nil {
		err = n.room(name, x)
	}
	if err == nil && in != nil {
		err = in.PutNote(name, note)
	}
	if err != nil {
		return public(fmt.Errorf("%w: the name was not kept: %w", ErrParkFailed, err))
	}
	if in == nil {
		n.notes[name] = note
	}
	n.count(name, x)
	return nil
}

// get returns the note of a session, or ErrNoSession if there is none.
func (n *names) get(in mempool.Notes, ref SessionRef) (*parkNote, error) {
	name, note, err := noteOf(&ref), []byte(nil), error(mempool.ErrMiss)
	if in != nil {
		note, err = in.Note(name)
	} else {
		n.mu.Lock()
		if kept, there := n.notes[name]; there {
			note, err = kept, nil
		}
		n.mu.Unlock()
	}
	if errors.Is(err, mempool.ErrMiss) {
		return nil, fmt.Errorf("%w: %q is not parked", ErrNoSession, ref.Name)
	}
	p := new(parkNote)
	if err == nil {
		err = json.Unmarshal(note, p)
	}
	if err == nil && (p.Ref != ref || len(p.Tokens)%4 != 0) {
		err = fmt.Errorf("%w: the note of session %q", mempool.ErrCorrupt, ref.Name)
	}
	return p, err
}

// drop removes the note of a session, and reports whether there was one.
func (n *names) drop(in mempool.Notes, ref SessionRef) (was bool, err error) {
	name := noteOf(&ref)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.load(in); err != nil {
		return false, err
	}
	if _, was = n.known[name]; !was {
		return false, nil
	}
	if in != nil {
		if err := in.DropNote(name); err != nil {
			return true, err
		}
	}
	delete(n.notes, name)
	n.count(name, parkedName{})
	return true, nil
}

// all returns the sessions with a note, in any order.
func (n *names) all(in mempool.Notes) (all []ParkedSession, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	err = n.load(in)
	for _, x := range n.known {
		all = append(all, x.ParkedSession)
	}
	return all, err
}
