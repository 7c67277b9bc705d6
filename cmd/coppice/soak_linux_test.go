package main

import (
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	soakFor  = flag.Duration("soak-for", 0, "duration of the faults of TestSoak; 0: skip it")
	soakSeed = flag.Uint64("soak-seed", 1, "seed of the faults and requests of TestSoak")
)

// TestSoak runs three workers with tiers, a router and a NATS server, each a process, the workers and the
// router within 512 MiB of memory. Workers are killed and stopped, NATS goes away, their disk is filled, and
// large bodies arrive, several at a time, while clients send requests and leave. Each request must have one ending.
// Only a request that a sick worker had in a plan may be lost. Texts must be those of a quiet server. At the end
// nothing may be left: no open request, no page, no descriptor, no goroutine, no temporary file.
func TestSoak(t *testing.T) {
	if *soakFor == 0 {
		t.Skip("run it with -args -soak-for 20s")
	}
	if end, ok := t.Deadline(); ok && time.Until(end) < *soakFor+3*patience {
		t.Fatalf("the test's own time is too short: add -timeout %v", *soakFor+10*time.Minute)
	}
	s := newSoak(t)
	s.warm()
	before := s.left()
	s.play()
	s.rest()
	s.checkLeft(before)
	s.end()
	t.Logf("%v: of %d requests %d were moved, %d left by their clients, and %d lost, all in a plan of a sick worker",
		s.faults, s.asked, s.moved, s.quit, s.lost)
}

// soak is a fleet under faults.
type soak struct {
	*realFleet
	load   *soakLoad
	crowd  *crowd
	start  time.Time
	model  string
	dir    string // of the tiers
	groups []string
	ports  int // of the first worker

	nats    *process
	natsAt  string
	mounted bool // dir is a file system of its own
	harms   []*soakHarm
	killed  map[int]bool // process ids
	large   sync.WaitGroup
	said    []string

	faults                   map[string]int // by kind
	asked, moved, quit, lost int
}

const (
	soakWorkers = 3
	soakClients = 8
	soakMemory  = 512 << 20
)

func newSoak(t *testing.T) *soak {
	t.Helper()
	s := &soak{realFleet: &realFleet{T: t}, start: time.Now(), model: nano(t), ports: freePorts(t, soakWorkers), natsAt: at(freePorts(t, 1)),
		killed: map[int]bool{}, faults: map[string]int{}}
	t.Cleanup(func() {
		if t.Failed() {
			last := strings.Join(s.said[max(0, len(s.said)-40):], "\n")
			t.Logf("seed %d, %v after the start; the last events:\n%s", *soakSeed, time.Since(s.start), last)
			t.Logf("again: go test ./cmd/coppice -run '^TestSoak$' -timeout %v -args -soak-for %v -soak-seed %d",
				*soakFor+10*time.Minute, *soakFor, *soakSeed)
		}
	})
	s.load = newSoakLoad(t, *soakSeed, s.model)
	s.dir, s.mounted = smallDisk(t, 60<<20)
	for i := range soakWorkers + 1 {
		s.groups = append(s.groups, limitedGroup(t, fmt.Sprint(i), soakMemory))
	}
	s.nats = startNATS(t, s.natsAt)
	for i := range soakWorkers {
		s.workers = append(s.workers, s.worker(i))
	}
	s.router = s.process("router", s.groups[soakWorkers], "route", "--addr", "127.0.0.1:0", "--events", "nats://"+s.natsAt,
		"--events-outlast", "3s", "--probe-every", "200ms", "--probe-timeout", "1s", "--queue-timeout", "60s", "--retries", "5")
	s.untilWhole()
	return s
}

func (s *soak) process(name, group string, args ...string) *process {
	s.Helper()
	return startProcess(s.T, name, serverGreets, []string{"COPPICE_TEST_MAIN=1", groupVariable + "=" + group}, args...)
}

// worker starts worker i at its port.
func (s *soak) worker(i int) *process {
	s.Helper()
	disk, shared := filepath.Join(s.dir, fmt.Sprint("disk", i)), filepath.Join(s.dir, "shared")
	return s.process(fmt.Sprint("w", i), s.groups[i], "serve", "--addr", at(s.ports+i), "--name", fmt.Sprint("w", i), "--publish", "nats://"+s.natsAt,
		"--model", s.model, "--no-page", "--no-curve", "--kv-tokens", "8192", "--kv-host", "4MiB", "--kv-disk", disk+":8MiB",
		"--kv-share", shared+":24MiB", "--kv-write", "through", "--kv-token-time", "1s", "--kv-flush", "2s",
		"--no-prefix-watch") // which remembers conversations: no memory may be held at rest
}

// gather starts the clients. If the test fails, the faults end before it waits for the clients.
func (s *soak) gather() {
	s.crowd = &crowd{calls: s.load.call, clients: soakClients, url: s.router.url, timeout: 2 * patience}
	s.crowd.begin(s.T, s.asked)
	s.Cleanup(func() {
		for _, p := range append([]*process{s.nats}, s.workers...) {
			p.resume() // a stopped process cannot end
		}
	})
}

// warm sends requests without faults. All must be answered.
func (s *soak) warm() {
	s.Helper()
	s.gather()
	s.crowd.untilMore(s.T, 60)
	s.crowd.disperse()
	s.judge()
	s.untilQuiet()
}

// play plays the schedule.
func (s *soak) play() {
	s.Helper()
	s.gather()
	schedule := soakSchedule{rnd: rand.New(rand.NewPCG(*soakSeed, 28))}
	next := schedule.next(soakWorkers)
	s.note("the faults begin")
	due, end, healthy := time.Now().Add(next.after), time.Now().Add(*soakFor), time.Now()
	for now := time.Now(); now.Before(end) && !s.Failed(); now = time.Now() {
		s.alive()
		s.heal(now, false)
		s.judge()
		switch {
		case now.Before(due):
			healthy = now
		case s.fits(next):
			s.begin(next)
			next = schedule.next(soakWorkers)
			due = time.Now().Add(next.after)
		case now.After(healthy.Add(patience)):
			s.Fatalf("%+v can't begin, as the fleet does not recover: %+v", next, s.status())
		}
		time.Sleep(20 * time.Millisecond) // between two looks
	}
	s.note("the faults end")
}

// rest ends the faults and checks that requests are answered again.
func (s *soak) rest() {
	s.Helper()
	s.alive()
	s.heal(time.Now(), true)
	s.crowd.disperse()
	s.judge()
	s.large.Wait()
	s.alive()
	s.untilWhole()
	s.heal(time.Now(), true)
	lost := s.lost
	s.warm()
	if s.Failed() {
		s.FailNow()
	}
	if s.lost > lost {
		s.Errorf("%d requests are lost without a fault", s.lost-lost)
	}
}

// alive checks that no process has ended by itself.
func (s *soak) alive() {
	s.Helper()
	for i, w := range s.workers {
		if w.ended() && !s.on(func(h *soakHarm) bool { return h.kind == "kill" && h.victim == i }) {
			s.Fatalf("%s has ended: %v", w.name, w.err)
		}
	}
	if s.router.ended() {
		s.Fatalf("the router has ended: %v", s.router.err)
	}
}

// judge checks and counts the answers since the last call.
func (s *soak) judge() {
	s.Helper()
	for _, a := range s.crowd.take() {
		s.asked++
		wrong := s.load.wrong(a)
		switch {
		case a.left:
			s.quit++
		case a.well():
			if a.attempts > 1 {
				s.moved++
			}
		case a.began && a.broken == nil && a.fault == "worker_failed" && s.excused(a):
			s.lost++
		default:
			wrong += " is lost"
		}
		if wrong != "" {
			s.note("request %d, sent at %.3f s", a.number, a.sent.Sub(s.start).Seconds())
			s.Errorf("request %d: in a plan %v: %v: %s", a.number, a.began, a, wrong)
		}
	}
}

// untilQuiet waits until no process has a request, and the router knows all events. It must not
// believe in more blocks than workers have.
func (s *soak) untilQuiet() {
	s.Helper()
	s.untilIdle()
	until(s.T, "the router is idle", func() string {
		m := s.router.figures()
		for _, name := range []string{"queued_requests", "worker_active_requests", "worker_active_blocks"} {
			if n := m["coppice_router_"+name]; n != 0 {
				return fmt.Sprintf("%s is %d", name, n)
			}
		}
		return ""
	})
	for _, w := range s.workers {
		until(s.T, w.name+" keeps no body", func() string {
			if m := w.figures(); m["coppice_http_body_bytes"]+m["coppice_http_memory_bytes"] != 0 {
				return fmt.Sprintf("%d and %d bytes", m["coppice_http_body_bytes"], m["coppice_http_memory_bytes"])
			}
			return ""
		})
	}
	for _, w := range s.workers {
		until(s.T, "the router has the events of "+w.name, func() string {
			made := w.figures()["coppice_events_next_sequence"]
			if r := s.status()[w.name].Ranks; len(r) != 1 || int(r[0].NextSeq) < made {
				return fmt.Sprintf("%d batches are made, and the router knows %+v", made, r)
			}
			return ""
		})
	}
	s.compare() // blocks in lower tiers count at workers alone, so both can't be equal
}

// soakLeft counts what a process has at rest, without connections that stay open for the next request: their number
// changes.
type soakLeft struct {
	goroutines, sockets int
	descriptors         []string
}

// left returns the counts of each process, the router last.
func (s *soak) left() (all []soakLeft) {
	s.Helper()
	idle := 0
	for _, p := range append(s.workers[:soakWorkers:soakWorkers], s.router) {
		conns, l := p.figures()["coppice_http_connections"], soakLeft{}
		l.descriptors, l.sockets = p.descriptors()
		l.goroutines = p.figures()["go_goroutines"] - conns
		l.sockets -= conns
		if idle += conns; p == s.router { // the other ends of the workers' connections, with two goroutines each
			l.goroutines -= 2 * idle
			l.sockets -= idle
		}
		all = append(all, l)
	}
	return all
}

// checkLeft compares what processes have at rest with what they had before the faults.
func (s *soak) checkLeft(before []soakLeft) {
	s.Helper()
	const slack = 8 // of those that come and go, such as of probes and of connections that end
	until(s.T, "nothing is left", func() string {
		for i, l := range s.left() {
			b := before[i]
			if l.goroutines > b.goroutines+slack || l.sockets > b.sockets+slack || len(l.descriptors) > len(b.descriptors)+2 {
				return fmt.Sprintf("process %d has %+v, had before %+v", i, l, b)
			}
		}
		return ""
	})
}

// end stops all processes and checks what they leave on disk: sound records, and temporary files only of killed processes.
func (s *soak) end() {
	s.Helper()
	for _, p := range append(s.workers[:soakWorkers:soakWorkers], s.router, s.nats) {
		p.stop()
	}
	dirs, err := filepath.Glob(filepath.Join(s.dir, "*"))
	if err != nil || len(dirs) != soakWorkers+1 {
		s.Errorf("the directories are %v, %v", dirs, err)
	}
	for _, dir := range dirs {
		for _, verb := range []string{"verify", "stat"} {
			if out, stderr, ok := command(s.T, "cache", verb, dir); !ok {
				s.Errorf("coppice cache %s %s: %s%s", verb, dir, out, stderr)
			}
		}
	}
	err = filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(d.Name(), "tmp-") && !s.ofKilled(d.Name()) {
			s.Errorf("%s is left", path)
		}
		return err
	})
	if err != nil {
		s.Error(err)
	}
}

// ofKilled reports whether the name of a temporary file has the id of a process that the test killed. Such files
// stay for an hour.
func (s *soak) ofKilled(name string) bool {
	for pid := range s.killed {
		if strings.Contains(name, fmt.Sprintf("-%d-", pid)) {
			return true
		}
	}
	return false
}
