package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/scheduler"
)

// TestKeepingAdmits: a tenant's older conversations make room for its newer ones, and not those of others.
func TestKeepingAdmits(t *testing.T) {
	k := &keptPins{most: 800}
	now := time.Unix(1000, 0)
	for i, tc := range []struct {
		tenant, name string
		tokens       int
		later        time.Duration
		ok           bool
		dropped      string
	}{
		{"a", "1", 100, 0, true, ""}, {"a", "2", 100, 0, true, ""}, {"a", "3", 100, 0, true, "a1"}, {"a", "2", 110, 0, true, "a3"}, {"a", "4", 201, 0, false, "a4"},
		{"b", "1", 200, 0, true, ""}, {"c", "1", 100, 0, false, "c1"}, {"c", "2", 90, 0, true, ""}, {"a", "5", 90, 0, true, "a2"}, {"a", "2", 200, 0, false, "a2"},
		{"d", "1", 1, 0, true, ""}, {"d", "2", 20, 0, true, "d1"}, {"c", "1", 200, 5 * time.Minute, true, ""}, {"b", "2", 200, 0, true, ""},
	} {
		now = now.Add(tc.later)
		dropped, ok := k.admit(now, keptPin{coppice.SessionRef{Tenant: tc.tenant, Name: tc.name}, tc.tokens, now.Add(5 * time.Minute)})
		text := ""
		for _, s := range dropped {
			text += s.Tenant + s.Name
		}
		if ok != tc.ok || text != tc.dropped {
			t.Errorf("%d: %s%s is admitted: %v, and dropped are %q; want %v and %q", i, tc.tenant, tc.name, ok, text, tc.ok, tc.dropped)
		}
	}
}

// TestMessagesKeep: what a request with cache_control leaves is pinned, moves on with the conversation, and has a bound.
func TestMessagesKeep(t *testing.T) {
	b := start(t, setup{Node: coppice.Config{Scheduler: scheduler.Config{PinnedTokens: 1024}}})
	pinned := func() (n int) {
		b.until(func(*coppice.Stats) bool { return b.srv.open.Count() == 0 }) // the pin follows the answer
		tree, err := b.node.Tree(t.Context(), coppice.TreeQuery{MaxNodes: 1000})
		b.ok(err)
		for _, node := range tree.Nodes {
			if node.Pins > 0 {
				n += node.Tokens
			}
		}
		return n
	}
	ask := func(mark, first, rest string) {
		b.message(`{"max_tokens":2,"messages":[{"role":"user","content":[{"type":"text","text":"` + first + `"` + mark + `}]}` + rest + `]}`)
	}
	const mark = `,"cache_control":{"type":"ephemeral","ttl":"1h"}`
	text := strings.Repeat("y", 100)
	if ask("", text, ""); pinned() != 0 {
		t.Errorf("%d tokens are pinned without cache_control", pinned())
	}
	ask(mark, text, "")
	one := pinned()
	if ask(mark, text, `,{"role":"assistant","content":"`+text+`"},{"role":"user","content":"z"}`); one < 64 || pinned() < one+64 || pinned() > one+144 {
		t.Errorf("%d tokens are pinned after a turn, and %d after the next", one, pinned())
	}
	for i := range 6 {
		if ask(mark, fmt.Sprint(i)+text, ""); pinned() > 256 || pinned() < 64 {
			t.Errorf("%d tokens are pinned, want at most a quarter of 1024", pinned())
		}
	}
	before := pinned()
	if ask(mark, strings.Repeat("z", 300), ""); pinned() > before {
		t.Errorf("more than may be kept: %d tokens are pinned, %d before", pinned(), before)
	}
}
