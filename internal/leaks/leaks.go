// Package leaks detects goroutines that tests leave running, after waiting for those that are about
// to end. It owns no state and never ends a goroutine. Only tests import it:
//
//	func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }
//
// or, for one test,
//
//	here := goleak.IgnoreCurrent()
//	... // begin and end something
//	leaks.Check(t, here)
package leaks

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long a goroutine may take to end. goleak's own limit of half a second is too short
// on a heavily loaded machine.
const patience = time.Minute

// Find waits until no goroutines run but those that ignore excepts, at most a minute. It returns nil
// then, or else an error that names the goroutines still running.
func Find(ignore ...goleak.Option) error {
	for end := time.Now().Add(patience); ; {
		err := goleak.Find(ignore...) // waits between its attempts, so this loop does not spin
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// Check reports the error of Find, if there is one, by t.Error.
func Check(t testing.TB, ignore ...goleak.Option) {
	t.Helper()
	if err := Find(ignore...); err != nil {
		t.Error(err)
	}
}

// Run runs a package's tests and returns their exit status. If the tests pass but leave goroutines
// running, except those that ignore excepts, it prints these goroutines and returns 1.
func Run(m *testing.M, ignore ...goleak.Option) int {
	code := m.Run()
	if code != 0 {
		return code
	}
	if err := Find(ignore...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
