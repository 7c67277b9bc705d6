package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// shape describes a load of requests: each has a shared prefix and a unique suffix. The prefixes
// in use change with the number of the request, so that there are always prompts to compute and,
// later on, blocks to evict.
type shape struct {
	groups       int // prefixes in use at a time
	each         int // approximate number of requests for each prefix
	prefixTokens int
	outputTokens int
	once         bool // each client sends one request
}

const suffixTokens = 40

// ids returns n made-up token ids; of has the two seeds of the random numbers.
func ids(n int, of ...uint64) []int {
	rng := rand.New(rand.NewPCG(of[0], of[1]))
	out := make([]int, n)
	for i := range out {
		out[i] = 64 + rng.IntN(192)
	}
	return out
}

func (s *shape) prefix(group int) []int { return ids(s.prefixTokens, 1, uint64(group)) }

// group returns the number of the i-th request's prefix.
func (s *shape) group(i int) int {
	return i/s.each + rand.New(rand.NewPCG(2, uint64(i))).IntN(s.groups)
}

func (s *shape) prompt(i int) []int {
	return append(s.prefix(s.group(i)), ids(suffixTokens, 3, uint64(i))...)
}

func (s *shape) call(i int) call {
	return call{path: "/v1/completions", body: completion(s.prompt(i), s.outputTokens, true)}
}

// call is one request of a load.
type call struct {
	path  string
	body  []byte
	leave int // the client leaves after this many events of the stream, or if negative once a worker has begun; 0: never
}

// answer is the outcome of one request.
type answer struct {
	number      int // of the request
	sent, ended time.Time
	status      int
	worker      string // the worker that began to answer
	attempts    int
	began       bool // a worker had it in a plan
	tokens      int
	text        string // of the first choice
	left        bool   // the client left before the end
	done        bool   // complete
	fault       string // code of the error that ended it
	broken      error  // error of the connection
}

func (a *answer) String() string {
	return fmt.Sprintf("status %d, by %q at attempt %d, %d tokens, done %v, fault %q, broken %v, %v", a.status, a.worker, a.attempts, a.tokens, a.done, a.fault, a.broken, a.ended.Sub(a.sent))
}

// well reports whether the answer is complete and without errors.
func (a *answer) well() bool {
	return a.status == http.StatusOK && a.done && a.tokens > 0 && a.fault == "" && a.broken == nil
}

// crowd is a closed loop of clients of a server. A client whose connection breaks stops.
type crowd struct {
	shape
	calls   func(i int) call // the i-th request
	clients int
	url     string
	timeout time.Duration // of a request; 0: none
	http    *http.Client
	next    atomic.Int64
	stop    chan struct{}
	wait    sync.WaitGroup

	mu      sync.Mutex
	answers []*answer // mu guards their fields too
}

// gather starts this many clients, which send requests of shape s to url. from is the number of
// the first request. At the end of the test it waits for the clients.
func gather(t *testing.T, url string, clients, from int, s shape) *crowd {
	c := &crowd{shape: s, clients: clients, url: url}
	c.calls = c.call
	c.begin(t, from)
	return c
}

// begin starts the clients.
func (c *crowd) begin(t *testing.T, from int) {
	c.stop, c.http = make(chan struct{}), &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: c.clients}, Timeout: c.timeout}
	c.next.Store(int64(from))
	for range c.clients {
		c.wait.Go(func() {
			for c.goesOn() {
				a := &answer{sent: time.Now(), number: int(c.next.Add(1) - 1)}
				c.mu.Lock()
				c.answers = append(c.answers, a)
				c.mu.Unlock()
				err := c.ask(a, c.calls(a.number))
				c.mu.Lock()
				a.ended, a.broken = time.Now(), err
				c.mu.Unlock()
				if err != nil || c.once {
					return
				}
			}
		})
	}
	t.Cleanup(func() { c.disperse() })
}

func (c *crowd) goesOn() bool {
	select {
	case <-c.stop:
		return false
	default:
		return true
	}
}

// disperse stops the clients, except those that send a single request, waits for all
// requests, and returns the number of the next one.
func (c *crowd) disperse() (next int) {
	if c.goesOn() && !c.once {
		close(c.stop)
	}
	c.wait.Wait()
	c.http.CloseIdleConnections()
	return int(c.next.Load())
}

// count returns the number of answers for which so is true.
func (c *crowd) count(so func(a *answer) bool) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.answers {
		if so(a) {
			n++
		}
	}
	return n
}

func done(a *answer) bool { return a.done }
func open(a *answer) bool { return a.ended.IsZero() }

// fine checks that all requests were answered completely.
func (c *crowd) fine(t *testing.T) {
	t.Helper()
	for _, a := range c.answers {
		if !a.well() {
			t.Error(a)
		}
	}
}

// take removes the answers of requests that have ended and returns them.
func (c *crowd) take() (ended []*answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	still := c.answers[:0:0]
	for _, a := range c.answers {
		if open(a) {
			still = append(still, a)
		} else {
			ended = append(ended, a)
		}
	}
	c.answers = still
	return ended
}

// untilMore waits until n more requests are done.
func (c *crowd) untilMore(t *testing.T, n int) {
	t.Helper()
	before := c.count(done)
	until(t, "requests go on", func() string {
		if more := c.count(done) - before; more < n {
			return fmt.Sprintf("%d of %d more", more, n)
		}
		return ""
	})
}

// halt stops the workers (SIGSTOP) at a time when at least n answers for which so is true have
// begun and are less than a quarter done. The answers stay there until the workers are continued or
// killed, except for tokens on their way: the rest leaves room for these on a busy machine.
func (c *crowd) halt(t *testing.T, n int, so func(a *answer) bool, workers ...*process) {
	t.Helper()
	all := func(do func(*process)) {
		for _, w := range workers {
			do(w)
		}
	}
	t.Cleanup(func() { all((*process).resume) }) // stopped processes cannot end
	until(t, "answers under way", func() string {
		all((*process).pause)
		got := c.count(func(a *answer) bool { return open(a) && a.tokens > 0 && a.tokens < c.outputTokens/4 && so(a) })
		if got >= n {
			return ""
		}
		all((*process).resume)
		return fmt.Sprintf("%d of %d", got, n)
	})
}

func completion(prompt []int, outputTokens int, stream bool) []byte {
	body, err := json.Marshal(map[string]any{"prompt": prompt, "max_tokens": outputTokens, "ignore_eos": true, "stream": stream})
	if err != nil {
		panic(err) // cannot happen: the values are plain
	}
	return body
}

// ask sends a request and reads its answer. Errors are those of the connection, unless the client left.
func (c *crowd) ask(a *answer, q call) error {
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if a.began = true; q.leave < 0 {
			a.left = true
			leave()
		}
		return nil
	}})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+q.path, bytes.NewReader(q.body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Coppice-Progress", "103")
	res, err := c.http.Do(r)
	if err == nil {
		err = c.read(a, q, res)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.left {
		return nil
	}
	return err
}

// read reads an answer, up to the event at which the client leaves.
func (c *crowd) read(a *answer, q call, res *http.Response) error {
	defer res.Body.Close()
	attempts, _ := strconv.Atoi(res.Header.Get("X-Coppice-Attempts"))
	c.mu.Lock()
	a.status, a.worker, a.attempts = res.StatusCode, res.Header.Get("X-Coppice-Worker"), attempts
	c.mu.Unlock()
	if res.StatusCode != http.StatusOK {
		text, err := io.ReadAll(res.Body)
		c.mu.Lock()
		defer c.mu.Unlock()
		a.fault = codeOf(text)
		return err
	}
	if res.Header.Get("Content-Type") == "application/json" {
		text, err := io.ReadAll(res.Body)
		c.mu.Lock()
		defer c.mu.Unlock()
		a.tokens, a.text, a.done = 1, textOf(text), err == nil
		return err
	}
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		c.mu.Lock()
		switch {
		case a.done || a.fault != "":
			a.fault = "data after the end: " + data
		case data == "[DONE]":
			a.done = true
		case strings.HasPrefix(data, `{"error"`):
			a.fault = codeOf([]byte(data))
		default:
			a.tokens++
			a.text += textOf([]byte(data))
		}
		a.left = a.left || q.leave > 0 && a.tokens == q.leave
		left := a.left
		c.mu.Unlock()
		if left {
			return nil
		}
	}
	return lines.Err()
}

// textOf returns the text of the first choice of an answer or of an event.
func textOf(data []byte) string {
	var a struct {
		Choices []struct {
			Text           string
			Message, Delta struct{ Content string }
		}
	}
	if json.Unmarshal(data, &a) != nil || len(a.Choices) == 0 {
		return ""
	}
	c := &a.Choices[0]
	return c.Text + c.Message.Content + c.Delta.Content
}

// codeOf returns the code of an error object of the API.
func codeOf(text []byte) string {
	var e struct{ Error struct{ Code string } }
	if json.Unmarshal(text, &e) != nil || e.Error.Code == "" {
		return fmt.Sprintf("no error: %q", text)
	}
	return e.Error.Code
}
