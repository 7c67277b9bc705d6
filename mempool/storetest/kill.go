package storetest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/mempool"
)

// childVariable is the environment variable that makes a test binary a child process, which puts
// load on a store. Its value is a seed and a directory.
const childVariable = "COPPICE_STORE_CHILD"

// Child must be called by TestMain. In a process that Kill or KillOneOfTwo started, it puts load
// on the store and returns the exit status; in other processes ok is false.
//
//	func TestMain(m *testing.M) {
//		if status, ok := storetest.Child(harness); ok {
//			os.Exit(status)
//		}
//		os.Exit(leaks.Run(m))
//	}
func Child(h Harness) (status int, ok bool) {
	arg := os.Getenv(childVariable)
	if arg == "" {
		return 0, false
	}
	seed, dir, _ := strings.Cut(arg, " ")
	n, err := strconv.ParseUint(seed, 10, 64)
	if err != nil {
		return 1, true
	}
	load(h, n, dir)
	return 0, true
}

// killExtents is the capacity of stores under load; killChains is the number of chains that each
// process uses. 24 chains of 4 extents are more than fit, so slots are reused.
const (
	killExtents = 48
	killChains  = 24
)

// load puts, reads and drops extents until its standard input ends. It prints a line after each
// put and before each drop, so that the lines name only extents that must be in the store.
func load(h Harness, seed uint64, dir string) {
	r := rigOf(&process{}, h, dir, killExtents)
	over := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(over)
	}()
	r.open()
	rng := rand.New(rand.NewPCG(seed, 1))
	for {
		select {
		case <-over:
			r.close()
			return
		default:
			r.loadOnce(rng)
		}
	}
}

func (r *rig) loadOnce(rng *rand.Rand) {
	n := rng.IntN(killChains)
	xs := r.chain(fmt.Sprint(n), 0, 48+8)
	switch rng.IntN(4) {
	case 0, 1:
		var ids []mempool.OpID
		for i := range xs {
			ids = append(ids, r.beginPut(&xs[i]))
		}
		for i, id := range ids {
			if d := r.wait(id); d.Err == nil {
				fmt.Println("put", n, i)
			} else if !errors.Is(d.Err, mempool.ErrFull) && !errors.Is(d.Err, mempool.ErrOrphan) {
				r.Error(d.Err)
			}
		}
	case 2:
		for i := range xs {
			if d := r.tryGet(&xs[i]); d.Err != nil && !errors.Is(d.Err, mempool.ErrMiss) {
				r.Error(d.Err)
			}
		}
	default:
		for i := len(xs) - 1; i >= rng.IntN(len(xs)); i-- {
			fmt.Println("drop", n, i)
			d := r.drop(&xs[i])
			if d.Err != nil && !errors.Is(d.Err, mempool.ErrMiss) && !errors.Is(d.Err, mempool.ErrChildren) {
				r.Error(d.Err)
			}
		}
	}
	clear(r.ended)
}

// process is the testing.TB of a rig in a child process, which ends with the first error.
type process struct{ testing.TB }

func (*process) Helper() {}
func (p *process) Error(args ...any) {
	fmt.Println("failed", fmt.Sprint(args...))
	os.Exit(1)
}
func (p *process) Errorf(format string, args ...any) { p.Error(fmt.Sprintf(format, args...)) }
func (p *process) Fatal(args ...any)                 { p.Error(args...) }
func (p *process) Fatalf(format string, args ...any) { p.Errorf(format, args...) }

// child is a process under load.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	lines *bufio.Scanner
}

func start(t testing.TB, seed int, dir string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", childVariable, seed, dir))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // in case the test fails early
		cmd.Process.Kill()
		cmd.Wait()
	})
	return &child{cmd, in, bufio.NewScanner(out)}
}

// follow reads n lines of the child's output, or all remaining lines if n is negative, and updates
// the map there: the extents (chain, index) that were put and not dropped.
func (c *child) follow(t testing.TB, n int, there map[[2]int]bool) {
	t.Helper()
	for ; n != 0 && c.lines.Scan(); n-- {
		var what string
		var at [2]int
		if _, err := fmt.Sscan(c.lines.Text(), &what, &at[0], &at[1]); err != nil {
			t.Fatalf("the process says %q", c.lines.Text())
		}
		if delete(there, at); what == "put" {
			there[at] = true
		}
	}
}

func (c *child) kill(t testing.TB, there map[[2]int]bool) {
	t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	c.follow(t, -1, there) // lines still in the pipe
	c.cmd.Wait()
	c.stdin.Close()
}

// Kill starts a process that puts load on a store and kills it at a random moment. It does so as
// often as rounds says, in one directory. Over all these runs, at least 95 % of the extents in the
// store must be found again, and all that are found must have the right bytes.
func Kill(t *testing.T, h Harness, rounds int) {
	r := rigOf(t, h, t.TempDir(), killExtents)
	other := r.opts
	other.Identity.ModelID = "another"
	o, err := h.Open(other)
	if err != nil {
		t.Fatal(err)
	}
	o.Close()
	there := map[[2]int]bool{}
	rng := rand.New(rand.NewPCG(1, uint64(rounds)))
	asked, found, shared := 0, 0, false
	for round := range rounds {
		c := start(t, round, r.opts.Dir)
		c.follow(t, 1+rng.IntN(300), there)
		c.kill(t, there)
		r.open()
		if others := r.store.Info().Others; len(others) != 1 || others[0] != other.Identity.Fingerprint().String() {
			t.Errorf("others are %v", others)
		}
		for at := range there {
			x := r.chain(fmt.Sprint(at[0]), 0, 48+8)[at[1]]
			asked++
			if d := r.tryGet(&x); d.Err == nil {
				found++
			} else {
				delete(there, at)
			}
		}
		for i := range killChains { // extents whose put was not printed before the kill must be right, too
			for _, x := range r.chain(fmt.Sprint(i), 0, 48+8) {
				if d := r.tryGet(&x); d.Err != nil {
					r.expect(d, mempool.ErrMiss)
				}
			}
		}
		clear(r.ended)
		shared = r.store.Info().Shared
		r.close()
	}
	t.Logf("%d kills: %d of %d extents found", rounds, found, asked)
	if asked == 0 || found*100 < asked*95 {
		t.Errorf("%d of %d extents are found", found, asked)
	}
	if !shared { // a shared store can't know yet that the writer of a temporary file was killed
		temporary(t, r.opts.Dir)
	}
}

// KillOneOfTwo runs two processes on one directory and kills one of the two, as often as rounds
// says. The other process must never read a wrong byte or part of a record.
func KillOneOfTwo(t *testing.T, rounds int) {
	dir := t.TempDir()
	stays := start(t, 1000, dir)
	for round := range rounds {
		c := start(t, round, dir)
		c.follow(t, 1+round*13, map[[2]int]bool{})
		c.kill(t, map[[2]int]bool{})
		stays.follow(t, 20, map[[2]int]bool{})
	}
	stays.stdin.Close()
	stays.follow(t, -1, map[[2]int]bool{})
	if err := stays.cmd.Wait(); err != nil {
		t.Error(err)
	}
}
