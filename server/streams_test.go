package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/scheduler"
)

var aborts = flag.Int("aborts", 500, "connections that TestAborted breaks off")

func contextOf(b *bed) (context.Context, context.CancelFunc) { return context.WithCancel(b.Context()) }

func drainBody(res *http.Response) {
	io.Copy(io.Discard, res.Body)
	res.Body.Close()
}

// TestAborted breaks off connections at all stages: nothing of them remains.
func TestAborted(t *testing.T) {
	b := start(t, setup{Sim: &sim.Config{Pages: 4096, MaxSlots: 64, MaxRows: 64}, Node: coppice.Config{MaxRequests: 4096}})
	body := `{"prompt":"What is light?","max_tokens":2000,"ignore_eos":true,"stream":true}`
	before := sockets(t)
	var clients sync.WaitGroup
	for c := range 16 {
		clients.Go(func() {
			for i := c; i < *aborts; i += 16 {
				conn, err := net.Dial("tcp", b.address)
				if err != nil {
					t.Error(err)
					return
				}
				request := fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
				switch i % 5 {
				case 0: // inside the body
					io.WriteString(conn, request[:len(request)-10])
				case 1: // at once
					io.WriteString(conn, request)
				case 2: // half closed: the client has finished sending and still reads
					io.WriteString(conn, request)
					conn.(*net.TCPConn).CloseWrite()
					io.Copy(io.Discard, conn)
				default: // after some tokens
					io.WriteString(conn, request)
					r := bufio.NewReader(conn)
					for lines := 0; lines < 8+i%20; {
						line, err := r.ReadBytes('\n') // as long as it is: several tokens may share an event
						if err != nil {
							t.Error(err)
							break
						}
						if bytes.HasPrefix(line, []byte("data: [DONE]")) {
							break // all tokens came in few events
						}
						if bytes.HasPrefix(line, []byte("data: ")) {
							lines++
						}
					}
				}
				conn.Close()
			}
		})
	}
	clients.Wait()
	b.quiet()
	b.until(func(*coppice.Stats) bool {
		return b.srv.metrics.conns.Load() == 0 && b.srv.bodies.Load() == 0 && b.unused() == 0
	})
	// Both ends of every connection are closed: net/http closes a descriptor after reporting the
	// state.
	b.until(func(*coppice.Stats) bool { return sockets(t) <= before })
	if st := b.stats(); st.Scheduler.Endings[coppice.Abort] == 0 {
		t.Error("no request was aborted: nothing was tested")
	}
}

// TestDisconnect: a client that disconnects during its answer, streamed or not, ends it.
func TestDisconnect(t *testing.T) {
	t.Parallel()
	b := start(t, setup{Sim: slow()})
	for _, stream := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := b.try(ctx, "POST", "/v1/completions", fmt.Sprintf(`{"prompt":["x","y"],"max_tokens":1000,"ignore_eos":true,"stream":%v}`, stream))
			gone <- err
		}()
		b.until(func(s *coppice.Stats) bool { return s.Scheduler.Running == 2 })
		cancel()
		if err := <-gone; err == nil {
			t.Error("it was answered")
		}
		b.quiet()
	}
	if st := b.stats(); st.Scheduler.Endings[coppice.Abort] != 4 {
		t.Errorf("endings %v, want 4 aborts", st.Scheduler.Endings)
	}
	b.client.CloseIdleConnections()
	b.until(func(*coppice.Stats) bool { return b.srv.metrics.conns.Load() == 0 })
	if a := b.do("GET", "/metrics", ""); !strings.Contains(string(a.body), `coppice_http_requests_total{method="POST",model_name="nano",path="/v1/completions",status="499"} 2`) ||
		!strings.Contains(string(a.body), `coppice_client_disconnects_total{model_name="nano"} 2`) {
		t.Errorf("metrics say %s", a.body)
	}
}

// TestLeaverIsBilled: tokens computed for a client that disconnected during its answer are
// billed, and tokens that were not computed are not: the tenants' counters equal the
// scheduler's.
func TestLeaverIsBilled(t *testing.T) {
	t.Parallel()
	core, logged := observer.New(zap.InfoLevel)
	device := slow()
	device.Profile.Eff.Step = 0.05
	b := start(t, setup{Sim: device, Server: Config{Keys: twoTenants, Log: zap.New(core), AccessLog: true}, Node: coppice.Config{Scheduler: scheduler.Config{MaxRunning: 2}}})
	b.key = "secret-of-a"
	leave := func(body string, when func(*coppice.Stats) bool) map[string]any {
		t.Helper()
		before := logged.FilterMessage("request").Len()
		ctx, cancel := contextOf(b)
		gone := make(chan error, 1)
		go func() {
			_, err := b.try(ctx, "POST", "/v1/completions", body)
			gone <- err
		}()
		b.until(when)
		cancel()
		if err := <-gone; err == nil {
			t.Error("it was answered")
		}
		b.until(func(*coppice.Stats) bool { return logged.FilterMessage("request").Len() > before })
		return logged.FilterMessage("request").All()[before].ContextMap()
	}
	prompt := strings.Repeat("What is light? ", 4)
	for _, form := range []string{`"prompt":%q,"stream":true`, `"prompt":%q,"stream":false`, `"prompt":[%[1]q,"y"],"stream":true`, `"prompt":[%[1]q,"y"],"stream":false`} {
		body := "{" + fmt.Sprintf(form, prompt) + `,"max_tokens":1000,"ignore_eos":true}`
		st := b.stats()
		line := leave(body, func(s *coppice.Stats) bool { return s.Scheduler.OutputTokens > st.Scheduler.OutputTokens+3 })
		got := b.stats().Scheduler
		for name, want := range map[string]uint64{
			"prompt_tokens": got.PromptTokens - st.Scheduler.PromptTokens, "cached_tokens": got.CachedTokens - st.Scheduler.CachedTokens,
			"output_tokens": got.OutputTokens - st.Scheduler.OutputTokens,
		} {
			if n := line[name].(int64); uint64(n) != want {
				t.Errorf("%s: %s is %d, the scheduler has %d", body, name, n, want)
			}
		}
		if line["status"].(int64) != statusGone || line["reason"] != "abort" || line["tenant"] != "a" {
			t.Errorf("%s: logged %v", body, line)
		}
	}
	b.key = "secret-of-b"
	release := b.hold(2)
	b.until(func(s *coppice.Stats) bool { return s.Scheduler.Running == 2 })
	b.key = "secret-of-a"
	line := leave(`{"prompt":"only waits"}`, func(s *coppice.Stats) bool { return s.Scheduler.Waiting == 1 })
	if line["prompt_tokens"].(int64) != 0 || line["reason"] != "abort" {
		t.Errorf("a client that only waited: logged %v", line)
	}
	release()
	b.until(func(*coppice.Stats) bool { return logged.FilterMessage("request").Len() == 7 })
	b.quiet()
	st, text := b.stats().Scheduler, string(b.do("GET", "/metrics", "").body)
	for name, want := range map[string]uint64{"prompt": st.PromptTokens, "cached": st.CachedTokens, "generation": st.OutputTokens} {
		sum := uint64(0)
		for _, m := range regexp.MustCompile(`(?m)^coppice_tenant_`+name+`_tokens_total\{.*\} (\d+)$`).FindAllStringSubmatch(text, -1) {
			n, err := strconv.ParseUint(m[1], 10, 64)
			b.ok(err)
			sum += n
		}
		if sum != want || want == 0 {
			t.Errorf("tenants have %d %s tokens, the scheduler %d", sum, name, want)
		}
	}
}

// sockets returns the number of open sockets of this process, where the system reports it.
func sockets(t *testing.T) (n int) {
	entries, err := os.ReadDir("/proc/self/fd")
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}
