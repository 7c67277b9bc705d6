package coppice

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/scheduler"
)

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
