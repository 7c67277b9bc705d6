package actors

import (
	"testing"

	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/scheduler"
)

// TestBegun: a request that asks for Begun gets it once, when its first step is planned rather
// than when it is done, however many samples it has. A waiting request gets none.
func TestBegun(t *testing.T) {
	h := hold(t, cpu.Config{})
	s := start(t, Config{Backend: h, Scheduler: scheduler.Config{MaxRunning: 2}}, cpu.Config{})
	first := open(t, s, Request{Prompt: prompt, MaxTokens: 2, IgnoreEOS: true, Samples: 2, Begun: true})
	if p, err := first.Next(patience(t)); err != nil || !p.Begun || len(p.Tokens) > 0 || p.Ending != nil {
		t.Fatalf("the first piece is %+v, %v", p, err)
	}
	second := open(t, s, Request{Prompt: "other " + prompt, MaxTokens: 2, IgnoreEOS: true, Begun: true})
	silent := open(t, s, Request{Prompt: "third " + prompt, MaxTokens: 2, IgnoreEOS: true})
	gauges(t, s, 1, 3) // the other sample follows the first one, which the device holds
	if p, ok, _ := second.take(); ok {
		t.Errorf("a request that waits has the piece %+v", p)
	}
	h.let(all)
	for stream, want := range map[*Stream]int{first: 0, second: 1, silent: 0} {
		begun := 0
		for at := 0; ; at++ {
			p, err := stream.Next(patience(t))
			if err != nil {
				t.Fatal(err)
			}
			if p.Begun {
				if begun++; at > 0 {
					t.Errorf("it comes as piece %d", at)
				}
			}
			if p.Final {
				break
			}
		}
		if begun != want {
			t.Errorf("request %d is told %d times that it begins, want %d", stream.id, begun, want)
		}
	}
}
