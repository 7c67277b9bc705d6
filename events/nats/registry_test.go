package nats

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// book is a registry and the changes that its reader was given.
type book struct {
	registry
	at time.Time
}

func newBook(cfg WatcherConfig) *book {
	return &book{registry{cfg: cfg.withDefaults(), names: make(map[Process]*entry)}, time.Unix(1000, 0)}
}

func (b *book) say(name string, epoch uint64, payload string) {
	b.receive(b.at, name, epoch, []byte(payload))
}

// news returns the changes that the reader did not know.
func (b *book) news() string {
	var all []string
	for c, ok := b.next(); ok; c, ok = b.next() {
		if c.Gone() {
			all = append(all, c.Name+" gone")
		} else {
			all = append(all, c.Name+"="+string(c.Payload))
		}
		b.delivered(c)
	}
	return strings.Join(all, ", ")
}

func (b *book) want(t *testing.T, want string) {
	t.Helper()
	if got := b.news(); got != want {
		t.Errorf("told %q, want %q", got, want)
	}
}

// wait lets time pass and judges like the watcher; the named workers answer if asked.
func (b *book) wait(d time.Duration, answering ...string) {
	b.at = b.at.Add(d)
	if _, ask := b.expire(b.at); ask {
		b.noteAsked(b.at)
		for _, name := range answering {
			b.say(name, 0, "x")
		}
	}
}

func TestRegistryReportsTheLatest(t *testing.T) {
	b := newBook(WatcherConfig{})
	b.want(t, "")
	b.say("a", 1, "x")
	b.say("b", 1, "x")
	b.say("a", 1, "x")
	b.want(t, "a=x, b=x")
	b.say("a", 1, "y")
	b.say("b", 1, "")
	b.say("a", 1, "z")
	b.want(t, "a=z, b gone")
	b.say("a", 1, "x")
	b.say("a", 1, "z")
	b.say("c", 1, "x")
	b.say("c", 1, "")
	b.say("a", 1, "")
	b.say("a", 1, "z")
	b.want(t, "") // the reader knows everything
	if len(b.names) != 1 {
		t.Errorf("%d names are kept", len(b.names))
	}
	b.say("b", 1, "x")
	b.want(t, "b=x")
}

// TestRegistryEpochs: processes with the same name are separate: messages of one do not affect
// the other.
func TestRegistryEpochs(t *testing.T) {
	b := newBook(WatcherConfig{})
	b.say("a", 5, "old")
	b.say("a", 6, "new")
	b.say("a", 5, "old")
	b.want(t, "a=old, a=new")
	b.say("a", 0, "untold") // from a process without an epoch
	b.want(t, "a=untold")
	b.say("a", 5, "")
	b.want(t, "a gone")
	b.say("a", 5, "") // a duplicate
	b.want(t, "")
	b.say("a", 6, "newer")
	b.say("a", 0, "")
	b.want(t, "a=newer, a gone")
	b.say("a", 6, "")
	b.want(t, "a gone")
	b.say("a", 2, "anew") // the old process is forgotten
	b.want(t, "a=anew")
	if m := b.metrics; m.Goodbyes != 4 || m.Heard != 9 || len(b.names) != 1 {
		t.Errorf("%v", m)
	}
}

func TestRegistrySilence(t *testing.T) {
	const grace = 8 * time.Second
	b := newBook(WatcherConfig{Grace: grace})
	b.say("a", 0, "x")
	b.at = b.at.Add(grace / 2)
	b.say("b", 0, "x")
	b.want(t, "a=x, b=x")
	if due, ask := b.expire(b.at); ask || due != b.at.Add(grace/2) {
		t.Errorf("judged again in %v, ask %v", due.Sub(b.at), ask)
	}
	b.wait(grace / 2) // a is asked
	b.wait(grace/4 - 1)
	b.want(t, "")
	b.wait(1)
	b.want(t, "a gone")
	b.wait(grace/4, "b") // b is asked, and answers
	b.wait(grace / 2)
	b.want(t, "")
	// An outage: doubts are dropped.
	b.wait(grace)
	b.renew(b.at)
	b.wait(grace - 1)
	b.want(t, "")
	b.wait(1)
	b.wait(grace / 4)
	b.want(t, "b gone")
	b.wait(100 * grace)
	if m := b.metrics; m.Lost != 2 || m.Outages != 1 || len(b.names) != 0 {
		t.Errorf("%v", m)
	}
	// Silent before the reader was told: as if it had never been there.
	b.say("c", 9, "x")
	b.wait(grace)
	b.wait(grace)
	b.want(t, "")
	if len(b.names) != 0 {
		t.Errorf("%d names are kept", len(b.names))
	}
}

func TestRegistryLimits(t *testing.T) {
	b := newBook(WatcherConfig{MaxNames: 2, MaxPayload: 4})
	for i := range 4 {
		b.say(fmt.Sprint("w", i), 1, "1234")
	}
	b.say("w0", 1, "12345")
	b.say("w1", 1, "")
	b.say("w3", 1, "4") // until the reader knows that w1 is gone, w1 keeps its place
	b.want(t, "w0=1234")
	b.say("w3", 1, "4")
	b.want(t, "w3=4")
	for _, name := range []string{"", "a.b", "a b", "a*", "ä", "a\x00", "a/b", strings.Repeat("x", MaxName+1)} {
		b.say(name, 1, "1")
	}
	b.want(t, "")
	if m := b.metrics; m.TooMany != 3 || m.Malformed != 9 {
		t.Errorf("%v", m)
	}
	b.say("w0", 1, "")
	b.say(strings.Repeat("x", MaxName), 1, "1")
	if got := b.news(); got != "w0 gone" {
		t.Errorf("told %q", got)
	}
	b.say(strings.Repeat("x", MaxName), 1, "1")
	if got := b.news(); len(got) != MaxName+2 {
		t.Errorf("told %q", got)
	}
}
