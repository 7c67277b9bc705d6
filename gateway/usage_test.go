package gateway

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coppice-llm/coppice/kv"
)

// TestUsage finds the field wherever the answer is split.
func TestUsage(t *testing.T) {
	const said = `"usage":{"prompt_tokens":70,"prompt_tokens_details":{"cached_tokens":`
	for text, want := range map[string]int{
		`{"choices":[{"text":"a \"cached_tokens\":99 b"}],` + said + `64}}}`:                           64,
		`{"choices":[],` + said + ` 1234567 }}}`:                                                       1234567,
		`data: {` + said + "0}}}\n\ndata: [DONE]\n\n":                                                  0,
		`data: {` + said + "16}}}\n\ndata: {" + said + "32}}}\n\n":                                     32,
		`{"choices":[{"text":"a \"cached_tokens\":99 b"}]}`:                                            -1,
		`{` + said + `null}}}`:                                                                         -1,
		`{` + said + `99999999999999999999}}}`:                                                         -1,
		`{"x":"` + strings.Repeat("y", 100) + `",` + said + "48}}," + strings.Repeat(" ", 100) + "1}}": 48,
	} {
		for size := 1; size <= len(text); size++ {
			u := usage{field: openaiWire.cached}
			for rest := text; rest != ""; {
				n := min(size, len(rest))
				u.pass([]byte(rest[:n]))
				rest = rest[n:]
			}
			got := -1
			if u.reported {
				got = u.cached
			}
			if got != want {
				t.Fatalf("in pieces of %d: %d, want %d in %s", size, got, want, text)
			}
		}
	}
}

// value returns a counter without labels.
func (s *stand) value(name string) float64 {
	s.t.Helper()
	families, err := s.cfg.Registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "coppice_router_"+name {
			return f.Metric[0].GetCounter().GetValue()
		}
	}
	s.t.Fatalf("there is no %s", name)
	return 0
}

// sum returns the sum of a counter of the gateway over its series, of those with this value of a label if one is given.
func (s *stand) sum(name string, label ...string) (sum float64) {
	s.t.Helper()
	families, err := s.cfg.Registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			counts := f.GetName() == "coppice_router_"+name && len(label) == 0
			for _, l := range m.Label {
				counts = counts || f.GetName() == "coppice_router_"+name && slices.Contains(label, l.GetValue())
			}
			if counts {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// TestConfirmedOverlap: the usage in the answer determines the confirmed overlap.
func TestConfirmedOverlap(t *testing.T) {
	a := newWorker(t, "a", true, nil)
	s := newStand(t, Config{Registry: prometheus.NewRegistry()}, a)
	s.ready(1)
	a.holds(run(0, 40)) // ten blocks
	s.until("the events", func() bool { return s.worker("a").Ranks[0].HeldBlocks == 10 })
	ask := func(tokens []kv.Token, stream bool, cached string) {
		a.does(func(rw http.ResponseWriter, r *http.Request) {
			usage := ""
			if cached != "" {
				usage = fmt.Sprintf(`"usage":{"prompt_tokens_details":{"cached_tokens":%s}}`, cached)
			}
			if stream {
				rw.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprintf(rw, "data: {}\n\ndata: {%s}\n\ndata: [DONE]\n\n", usage)
				return
			}
			fmt.Fprintf(rw, `{%s}`, usage)
			io.WriteString(rw, "\n")
		})
		if r := s.ask(t.Context(), tokens, fmt.Sprintf(`,"max_tokens":1,"stream":%v`, stream)); r.StatusCode != 200 {
			t.Fatal(r.Status, r.text)
		}
		s.idle()
	}
	want := func(confirmed, over, under, unconfirmed float64) {
		t.Helper()
		s.until("it is counted", func() bool {
			return s.value("overlap_blocks_total") == confirmed && s.value("overpredicted_blocks_total") == over &&
				s.value("underpredicted_blocks_total") == under && s.value("unconfirmed_requests_total") == unconfirmed
		})
	}
	ask(run(0, 48), false, "40")
	want(10, 0, 0, 0)
	ask(run(0, 48), true, "12") // seven blocks were evicted
	want(13, 7, 0, 0)
	ask(run(0, 48), true, "44") // one more than the events announced
	want(24, 7, 1, 0)
	ask(run(0, 40), false, "39") // all of it: one token is always computed
	want(34, 7, 1, 0)
	ask(run(0, 40), true, "")
	want(34, 7, 1, 1)
}
