package coppice

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/actors"
	"github.com/coppice-llm/coppice/scheduler"
)

// TestRequestConverts: every field of a Request reaches package actors.
func TestRequestConverts(t *testing.T) {
	from, to := reflect.TypeFor[Request](), reflect.TypeFor[actors.Request]()
	if from.NumField() != to.NumField() {
		t.Errorf("%d fields become %d", from.NumField(), to.NumField())
	}
	for i := range from.NumField() {
		var r Request
		field := reflect.ValueOf(&r).Elem().Field(i)
		switch f := field; f.Kind() {
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.String:
			f.SetString("a")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Struct:
			for j := range f.NumField() {
				if f.Field(j).Kind() == reflect.String {
					f.Field(j).SetString("a")
				} else if f.Field(j).CanUint() {
					f.Field(j).SetUint(1)
				}
			}
		default:
			f.SetInt(1)
		}
		got := reflect.ValueOf(r.inner()).FieldByName(from.Field(i).Name)
		if !got.IsValid() || got.IsZero() || fmt.Sprint(got) != fmt.Sprint(field) {
			t.Errorf("%s: %v becomes %v", from.Field(i).Name, field, got)
		}
	}
}

// TestErrorNames: errors of this package begin with coppice: or with no package name of the
// module, and match both this package's variables and those that they wrap.
func TestErrorNames(t *testing.T) {
	for _, err := range []error{ErrQueueFull, ErrTenantFull, ErrDisplaced, ErrEmptyPrompt, ErrPromptTooLong, ErrTooLarge, ErrInvalid, ErrAborted,
		ErrDeadline, ErrQueueTimeout, ErrFormatTimeout, ErrClosed, ErrLagged, ErrNoCache, ErrContract, ErrLogits, ErrNotCached, ErrPinBudget} {
		if !strings.HasPrefix(err.Error(), "coppice: ") {
			t.Errorf("%q does not begin with coppice:", err)
		}
	}
	err := public(&scheduler.FieldError{Field: "MaxTokens", Err: fmt.Errorf("%w: MaxTokens is -1", scheduler.ErrInvalid)})
	field := (*FieldError)(nil)
	if !errors.As(err, &field) || field.Field != "MaxTokens" || !errors.Is(err, ErrInvalid) || !errors.Is(err, scheduler.ErrInvalid) || !strings.HasPrefix(err.Error(), "coppice: ") {
		t.Errorf("%v", err)
	}
	_, err = Open(Config{MaxRequests: -1, EventRing: -1})
	for line := range strings.Lines(err.Error()) {
		if !strings.HasPrefix(line, "coppice: ") {
			t.Errorf("%q does not begin with coppice:", line)
		}
	}
}
