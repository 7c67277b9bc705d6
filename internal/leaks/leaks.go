// Package leaks finds goroutines that tests leave behind, and waits for those that are
// about to end. It never ends one itself. Only tests import it:
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

// patience is how long a goroutine may take to end. goleak's own, half a second, is over
// where a machine that has much else to do stands still.
const patience = time.Minute

// Find is an error that names the goroutines that are still there after a minute, but for
// those that are to be ignored.
func Find(ignore ...goleak.Option) error {
	for end := time.Now().Add(patience); ; {
		err := goleak.Find(ignore...) // which waits between its looks
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// Check has a test fail that left goroutines behind.
func Check(t testing.TB, ignore ...goleak.Option) {
	t.Helper()
	if err := Find(ignore...); err != nil {
		t.Error(err)
	}
}

// Run runs a package's tests and returns their exit status: 1 if all passed and left
// goroutines behind.
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
