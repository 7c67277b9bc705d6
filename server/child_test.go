package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/scheduler"
)

// childVariable is an environment variable with which the test binary runs as a server in a
// process of its own, so that the resource use of the server can be told from that of its clients.
const childVariable = "COPPICE_SERVER_TEST_CHILD"

// many is a device for 1,000 streams. Its steps are long enough for everything else to keep up
// on two shared cores, so that each token is one write.
func many(vocab int) sim.Config {
	p, err := sim.ProfileByName("h200")
	if err != nil {
		panic(err)
	}
	p.Eff.Step = 0.06
	return sim.Config{Profile: p, Pages: 16384, MaxSlots: 1024, MaxRows: 1024, Vocab: vocab, Sanitize: sim.Boundary}
}

// taken is the resource use of a process.
type taken struct {
	CPU        time.Duration // user and system
	RSS        int64         // bytes
	Goroutines int
	Heap       uint64 // in use
	Stacks     uint64
	Steps      uint64
	Output     uint64 // tokens
}

func (u taken) since(before taken) taken {
	u.CPU -= before.CPU
	u.Steps -= before.Steps
	u.Output -= before.Output
	return u
}

func measure(node *coppice.Node) taken {
	u := taken{CPU: processorTime(), Goroutines: runtime.NumGoroutine()}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.Heap, u.Stacks = m.HeapInuse, m.StackInuse
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		var size, rss int64
		fmt.Sscan(string(text), &size, &rss)
		u.RSS = rss * int64(os.Getpagesize())
	}
	st, err := node.Stats(context.Background())
	if err != nil {
		panic(err)
	}
	u.Steps, u.Output = st.Scheduler.Steps, st.Scheduler.OutputTokens
	return u
}

// child serves until its standard input ends. For each input line it prints its resource use. If
// the line has a number of callers and of tokens, it first plays these callers itself.
func child() error {
	m, err := model.Open(nano)
	if err != nil {
		return err
	}
	defer m.Close()
	backend, err := sim.Open(many(m.Config().Vocab))
	if err != nil {
		return err
	}
	node, err := coppice.Open(coppice.Config{Backend: backend, Tokenizer: m.Tokenizer(), EOS: m.Config().EOS, MaxRequests: 2048, Scheduler: scheduler.Config{StepTokens: 8192, MaxPrefilling: 1024}})
	if err != nil {
		return err
	}
	srv, err := New(Config{Node: node, Model: "nano", Page: true, Pprof: true})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	fmt.Println(l.Addr())
	in := bufio.NewScanner(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		var callers, tokens int
		if n, _ := fmt.Sscan(in.Text(), &callers, &tokens); n == 2 {
			play(node, callers, tokens)
		}
		if err := out.Encode(measure(node)); err != nil {
			return err
		}
	}
	return errors.Join(srv.Close(), <-served, node.Close())
}

// play reads all tokens of some callers from the node, without a server.
func play(node *coppice.Node, callers, tokens int) {
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			req := coppice.Request{Prompt: streamPrompt(i), MaxTokens: tokens, IgnoreEOS: true, Namespace: conversation.Namespace("", "play")}
			for _, err := range node.Generate(context.Background(), req) {
				if err != nil {
					panic(err)
				}
			}
		})
	}
	all.Wait()
}

func streamPrompt(i int) string { return fmt.Sprintf("Stream number %d, what is light?", i) }

// process is a running child.
type process struct {
	*testing.T
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	address string
}

func startChild(t *testing.T) *process {
	t.Helper()
	p := &process{T: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), childVariable+"=1")
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.in.Close()
		if err := p.cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	line, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	p.address = strings.TrimSpace(line)
	return p
}

// usage returns the child's resource use after handling line.
func (p *process) usage(line string) (u taken) {
	p.Helper()
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		p.Fatal(err)
	}
	text, err := p.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(text, &u)
	}
	if err != nil {
		p.Fatalf("%v in %q", err, text)
	}
	return u
}
