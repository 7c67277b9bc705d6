package bail

import (
	"errors"
	"testing"
)

// TestRecover checks that an error given to Out is returned, and that other panics go on.
func TestRecover(t *testing.T) {
	fault := errors.New("a fault")
	call := func(f func()) (err error) {
		defer Recover(&err)
		f()
		return nil
	}
	if err := call(func() {}); err != nil {
		t.Errorf("without a fault: %v", err)
	}
	if err := call(func() { Out(fault); t.Error("Out returned") }); err != fault {
		t.Errorf("%v, want %v", err, fault)
	}
	if err := call(func() { _ = call(func() { Out(fault) }) }); err != nil {
		t.Errorf("recovered twice: %v", err)
	}
	defer func() {
		if p := recover(); p != "other" {
			t.Errorf("recovered %v", p)
		}
	}()
	_ = call(func() { panic("other") })
}
