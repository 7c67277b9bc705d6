package storetest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coppice-llm/coppice/mempool/internal/blockio"
)

// control is a broken store that a check must detect. name completes "a store that …"; says is
// part of the check's report.
type control struct {
	check, name, says string
	flaw              flaw
	private           bool // skipped for shared stores
}

// hangs is part of the report of an operation that never ends. A control with this report waits
// only brief instead of patience.
const (
	hangs = "does not end"
	brief = 100 * time.Millisecond
)

// RunControls runs every check against deliberately broken stores, made from those of h, and
// fails if a check passes. It shows that Run can fail.
func RunControls(t *testing.T, h Harness) {
	shared := isShared(t, h)
	h.Faults = []blockio.Point{blockio.Write} // enough to detect every control, and faster
	for _, c := range checks() {
		if !c.applies(&h, shared) {
			continue
		}
		n := 0
		for _, k := range controls() {
			if k.check != c.name || k.private && shared {
				continue
			}
			n++
			t.Run(c.name+"/"+strings.ReplaceAll(k.name, " ", "-"), func(t *testing.T) {
				found := k.try(t, h, c)
				t.Log(found)
				if !strings.Contains(found, k.says) || found == "" {
					t.Errorf("check %s reports %q for a store that %s, want %q", c.name, found, k.name, k.says)
				}
			})
		}
		if n == 0 {
			t.Errorf("check %s has no control", c.name)
		}
	}
}

// try runs a check on a broken store and returns the fault that it reports.
func (k *control) try(t *testing.T, h Harness, c check) string {
	v := &verdict{TB: t}
	p := newPast()
	here := goleak.IgnoreCurrent()
	over := make(chan struct{})
	go func() { // Fatal ends this goroutine
		defer close(over)
		defer func() {
			for _, f := range v.after {
				f()
			}
		}()
		patience := patience
		if k.says == hangs {
			patience = brief
		}
		judge(v, p.wrap(h, k.flaw), c, patience)
		if err := goleak.Find(here); err != nil {
			v.Error(err)
		}
	}()
	<-over
	for _, undo := range p.undo {
		undo()
	}
	return v.found.String()
}

// verdict collects the reports of a check. After the first report, the remaining parts of the
// check are skipped.
type verdict struct {
	testing.TB
	mu    sync.Mutex
	found strings.Builder
	after []func()
}

func (v *verdict) Helper()          {}
func (v *verdict) Cleanup(f func()) { v.after = append(v.after, f) }
func (v *verdict) Error(args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	fmt.Fprintln(&v.found, args...)
}
func (v *verdict) Errorf(format string, args ...any) { v.Error(fmt.Sprintf(format, args...)) }
func (v *verdict) Fatal(args ...any)                 { v.Error(args...); runtime.Goexit() }
func (v *verdict) Fatalf(format string, args ...any) { v.Errorf(format, args...); runtime.Goexit() }
