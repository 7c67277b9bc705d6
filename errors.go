package coppice

import (
	"errors"

	"github.com/coppice-llm/coppice/actors"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/events/eventlog"
	"github.com/coppice-llm/coppice/internal/budget"
	"github.com/coppice-llm/coppice/internal/wording"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler"
)

// Errors of requests and of the cache methods. The errors that a Node returns wrap one of them
// and add the figures; test with errors.Is.
var (
	ErrQueueFull     = wording.Error(scheduler.ErrQueueFull)     // MaxRequests are open, or Scheduler.MaxQueued wait
	ErrTenantFull    = wording.Error(scheduler.ErrTenantFull)    // the tenant has as many waiting requests as it may have
	ErrDisplaced     = wording.Error(scheduler.ErrDisplaced)     // a request of higher priority took its place in the queue
	ErrEmptyPrompt   = wording.Error(scheduler.ErrEmptyPrompt)   // neither text nor tokens
	ErrPromptTooLong = wording.Error(scheduler.ErrPromptTooLong) // more tokens than the model has positions
	ErrTooLarge      = wording.Error(scheduler.ErrTooLarge)      // more tokens than the pool can hold
	ErrInvalid       = wording.Error(scheduler.ErrInvalid)       // a field has an invalid value
	ErrAborted       = wording.Error(scheduler.ErrAborted)       // by Stream.Abort
	ErrDeadline      = wording.Error(scheduler.ErrDeadline)      // after Request.Timeout
	ErrQueueTimeout  = wording.Error(scheduler.ErrQueueTimeout)  // after Request.QueueTimeout
	ErrMemory        = wording.Error(budget.ErrFull)             // Config.Memory has no room for the request
	ErrFormatTimeout = wording.Error(actors.ErrFormatTimeout)    // Request.Format took too long to compile
	ErrClosed        = wording.Error(actors.ErrClosed)           // the Node was closed
	ErrLagged        = wording.Error(eventlog.ErrLagged)         // events that are no longer kept
	ErrNoCache       = wording.Error(scheduler.ErrNoCache)       // Scheduler.DisableCache is set
	ErrContract      = wording.Error(scheduler.ErrContract)      // the backend broke its contract
	ErrLogits        = wording.Error(engine.ErrLogits)           // the backend computed no usable logits
	ErrNotCached     = wording.Error(radixcache.ErrNotCached)    // the cache does not hold the prefix
	ErrNoSession     = wording.Error(scheduler.ErrNoSession)     // no turn of the session has ended, or it was released
	ErrNoTier        = wording.Error(scheduler.ErrNoTier)        // a Park without Config.Tiers
	ErrParkFailed    = wording.Error(scheduler.ErrParkFailed)    // a tier has no room for a Park, or fails
	ErrPinBudget     = wording.Error(radixcache.ErrPinBudget)    // more pinned tokens than Scheduler.PinnedTokens
)

// FieldError is an error caused by one field of a Request, such as "MaxTokens". Its text is that of Err.
type FieldError = scheduler.FieldError

// public returns err with the words of this package. An error of a field becomes a
// *FieldError of this package; nil stays nil.
func public(err error) error {
	if err == nil {
		return nil
	}
	if field := (*scheduler.FieldError)(nil); errors.As(err, &field) {
		return &FieldError{Field: field.Field, Err: wording.Error(err)}
	}
	return wording.Error(err)
}
