package server

import (
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/scheduler"
)

// interims sends a request with this body, and with X-Coppice-Progress if header is not "". It
// adds the number of interim responses to count, and checks that each reports a running request.
func (b *bed) interims(header, body string, count *atomic.Int32) (*http.Response, error) {
	ctx := httptrace.WithClientTrace(b.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		if code != 103 || h.Get("X-Coppice-Phase") != "running" {
			b.Errorf("interim response %d %v", code, h)
		}
		count.Add(1)
		return nil
	}})
	req, err := http.NewRequestWithContext(ctx, "POST", b.url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if header != "" {
		req.Header.Set("X-Coppice-Progress", header)
	}
	return b.client.Do(req)
}

// TestInterimResponse: a router that asks for it gets one interim response, when its request
// first enters a step and not while it waits: for streams and whole answers, with several
// prompts and samples. Without the header there is only the answer.
func TestInterimResponse(t *testing.T) {
	device := slow()
	device.Pages, device.MaxPositions, device.Profile.Eff.Step = 4096, 1<<17, 0.005
	b := start(t, setup{Sim: device, Node: coppice.Config{Scheduler: scheduler.Config{MaxRunning: 1}}})
	for _, tc := range []struct {
		header, body string
		want         int32
	}{
		{"103", `{"prompt":"x","max_tokens":3}`, 1},
		{"103", `{"prompt":"x","max_tokens":3,"stream":true}`, 1},
		{"103", `{"prompt":["x","y"],"max_tokens":3,"n":2}`, 1},
		{"103", `{"prompt":["x","y"],"max_tokens":3,"n":2,"stream":true}`, 1},
		{"", `{"prompt":"x","max_tokens":3}`, 0},
		{"1", `{"prompt":"x","max_tokens":3,"stream":true}`, 0},
		{"103", `{"prompt":"x","max_tokens":-3}`, 0}, // refused
	} {
		ctx, cancel := context.WithCancel(b.Context())
		go b.try(ctx, "POST", "/v1/completions", `{"prompt":"z","max_tokens":50000,"ignore_eos":true,"stream":true}`)
		b.until(func(s *coppice.Stats) bool { return s.Scheduler.Running == 1 })
		var count atomic.Int32
		answered := make(chan *http.Response)
		go func() {
			res, err := b.interims(tc.header, tc.body, &count)
			if err != nil {
				t.Error(err)
			}
			answered <- res
		}()
		if !strings.Contains(tc.body, "-3") {
			b.until(func(s *coppice.Stats) bool { return s.Scheduler.Waiting > 0 })
		}
		if n := count.Load(); n != 0 {
			t.Errorf("%s: %d interim responses while it waits", tc.body, n)
		}
		cancel()
		res := <-answered
		if res == nil {
			continue
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Error(err)
		}
		res.Body.Close()
		if n := count.Load(); n != tc.want || res.Header.Get("X-Coppice-Phase") != "" {
			t.Errorf("%q %s: %d interim responses, want %d; then %s %v", tc.header, tc.body, n, tc.want, res.Status, res.Header)
		}
		b.until(func(s *coppice.Stats) bool { return s.Scheduler.Running+s.Scheduler.Waiting == 0 })
	}
	body := `{"prompt":"x","max_tokens":1}`
	old := strings.Replace(post(len(body), body), "HTTP/1.1\r\n", "HTTP/1.0\r\nX-Coppice-Progress: 103\r\n", 1)
	if got := b.raw(old); !strings.HasPrefix(got, "HTTP/1.0 200") {
		t.Errorf("HTTP/1.0 gets %.200q", got)
	}
	b.quiet()
}
