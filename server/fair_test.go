package server

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/scheduler"
)

// TestSharesOfKeys checks the shares of two keys under the policy dlpm. One key sends large
// requests one at a time, like an agent. The other key keeps 16 small requests open. The first key
// is served no more tokens than the second, except for the policy's bound.
func TestSharesOfKeys(t *testing.T) {
	const quantum, large, small, output, slots, open = 256, 600, 40, 2, 2, 16
	device := slow()
	device.Pages, device.MaxSlots, device.Profile.Eff.Step = 1024, slots, 0.002
	device.Profile.Device.BW, device.Profile.Device.Flops = 1e15, 1e18 // make everything else free
	b := start(t, setup{Sim: device, Server: Config{Keys: twoTenants}, Node: coppice.Config{
		Scheduler: scheduler.Config{Policy: scheduler.DLPM, Quantum: quantum, DisableCache: true}}})
	stop := make(chan struct{})
	var many sync.WaitGroup
	for i := range open {
		many.Go(func() {
			for id := i; ; id += open {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := b.takes("secret-of-b", id, small, output); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	served := func() int { // b's account is never idle
		for _, u := range b.stats().Tenants {
			if u.Tenant == "b" {
				return int(u.ServedTokens)
			}
		}
		return 0
	}
	backlogged := func(s *coppice.Stats) bool { return s.Scheduler.Waiting >= open-slots-2 }
	b.until(backlogged)
	from, got := served(), 0
	const bound = 2 * (quantum + large + slots*output)
	for id := range 12 {
		n, err := b.takes("secret-of-a", id, large, output)
		b.ok(err)
		got += n
		if lead := got - (served() - from); lead > bound {
			t.Errorf("after %d requests the key that sends one at a time was served %d tokens, the other one %d: want at most %d more", id+1, got, got-lead, bound)
			break
		}
		b.until(backlogged)
	}
	close(stop)
	many.Wait()
	text := b.metricsText()
	for tenant, least := range map[string]int{"a": got, "b": from} {
		m := regexp.MustCompile(`coppice_tenant_served_tokens_total\{.*tenant="` + tenant + `"\} (\S+)`).FindStringSubmatch(text)
		if m == nil {
			t.Errorf("no metric of %q", tenant)
		} else if n, err := strconv.ParseFloat(m[1], 64); err != nil || int(n) < least {
			t.Errorf("the metric of %q is %s, want at least %d", tenant, m[1], least)
		}
	}
}

// takes sends a new prompt of this many tokens with a key, and returns the number of tokens
// computed for it: the uncached part of the prompt and the output. id makes the prompt differ from
// others; output is the length of the answer.
func (b *bed) takes(key string, id, prompt, output int) (int, error) {
	tokens := make([]string, prompt)
	for i := range tokens {
		tokens[i] = strconv.Itoa(1 + (id+i*i)%100)
	}
	c := *b
	c.key = key
	body := fmt.Sprintf(`{"prompt":[%s],"max_tokens":%d,"ignore_eos":true}`, strings.Join(tokens, ","), output)
	a, err := c.try(b.Context(), "POST", "/v1/completions", body)
	if err != nil || a.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%v, %s", err, a.body)
	}
	u := b.decode(a.body).Usage
	return u.Prompt - u.Details.Cached + u.Completion, nil
}

func (b *bed) metricsText() string {
	b.Helper()
	return string(b.do("GET", "/metrics", "").body)
}

// TestUsageOfSamples: usage covers all samples, whichever of them computed the prompt.
func TestUsageOfSamples(t *testing.T) {
	leaders := map[string]bool{}
	for seed := uint64(1); seed <= 8; seed++ {
		b := start(t, setup{Sim: &sim.Config{Pages: 1024}, Node: coppice.Config{Scheduler: scheduler.Config{Policy: scheduler.Random, Seed: seed, StepTokens: 8}}})
		const prompt, n, output = 30, 3, 4
		tokens := strings.TrimSuffix(strings.Repeat("7,", prompt), ",")
		for _, stream := range []string{"false", "true"} {
			body := fmt.Sprintf(`{"prompt":[%s],"n":%d,"max_tokens":%d,"ignore_eos":true,"stream":%s,"stream_options":{"include_usage":true},"cache_salt":%q}`, tokens, n, output, stream, stream)
			var u *reply
			if stream == "true" {
				chunks := b.streamed("/v1/completions", body)
				u = chunks[len(chunks)-1]
				for _, c := range chunks {
					if len(c.Choices) > 0 {
						leaders[strconv.Itoa(c.Choices[0].Index)] = true
						break
					}
				}
			} else {
				u = b.ask("/v1/completions", strings.Replace(body, `"stream_options":{"include_usage":true},`, "", 1))
			}
			if u.Usage == nil || u.Usage.Prompt != prompt || u.Usage.Details.Cached != 0 || u.Usage.Completion != n*output {
				t.Errorf("seed %d, stream %s: usage %+v", seed, stream, u.Usage)
			}
		}
		if st := b.stats().Scheduler; st.PromptTokens != 2*n*prompt || st.CachedTokens != 2*(n-1)*(prompt-1) {
			t.Errorf("seed %d: of %d prompt tokens %d cached", seed, st.PromptTokens, st.CachedTokens)
		}
	}
	if len(leaders) < 2 {
		t.Errorf("the prompt was computed by sample %v alone: no test", leaders)
	}
}
