package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/gateway/internal/dispatch"
	"github.com/coppice-llm/coppice/internal/web"
	"github.com/coppice-llm/coppice/router"
)

// Errors that the gateway answers with itself.
var (
	errDrained   = conversation.NewError(http.StatusServiceUnavailable, "shutting_down", "the gateway shut down before this request ended; ask again")
	errDraining  = conversation.NewError(http.StatusServiceUnavailable, "shutting_down", "the gateway is shutting down and takes no more requests")
	errNoWorkers = conversation.NewError(http.StatusServiceUnavailable, "no_workers", "no worker can take the request: all are lost, draining or refused; the gateway's /v1/fleet says why")
	errNoneAmong = conversation.NewError(http.StatusServiceUnavailable, "no_workers", "none of the endpoints that the proxy allows for this request is a worker that can take it; the picker's /v1/fleet lists the workers")
	errEmpty     = conversation.NewError(http.StatusServiceUnavailable, "no_workers", "the gateway has no workers: give it some by --worker or --workers-file, or have them register over NATS (--events nats://host:4222)")
	errBusy      = conversation.NewError(http.StatusServiceUnavailable, "workers_busy", "all workers were busy for the whole time that a request may wait; ask again later")
	errConns     = conversation.NewError(http.StatusServiceUnavailable, "too_many_connections", "the gateway has reached its limit of connections (--max-conns) and answers only health probes; ask again later, or over an open connection")
	errInternal  = conversation.NewError(http.StatusInternalServerError, "internal_error", "the gateway failed; its log says why")
	errTooMany   = conversation.NewError(http.StatusTooManyRequests, "too_many_requests", "the limit of open or waiting requests is reached; ask again later")
	errLoop      = conversation.NewError(http.StatusLoopDetected, "loop", "the request has come back to the gateway: it is a worker of its own, or of one of its workers")
)

// unavailable returns the error for the client if no worker began to answer. worker is the last
// worker that was asked, err its failure.
func unavailable(worker string, err error) *conversation.Error {
	if b, ok := err.(*busyError); ok && b.status == http.StatusTooManyRequests {
		return errTooMany
	}
	return conversation.NewError(http.StatusBadGateway, "worker_failed", "worker %s did not answer, and no other worker was left to try; ask again", worker)
}

// failedLate returns the error for the client if worker failed with a request that is not sent to a further one. known says that
// the worker is known to have begun it; otherwise it may have begun. repeats is how many workers before it failed in the same way.
func failedLate(worker string, known bool, repeats int, effects bool) *conversation.Error {
	text := "worker " + worker + " failed after it began to compute the request"
	if !known {
		text = "worker " + worker + " failed after it received the request and may have begun to compute it"
	}
	switch {
	case repeats > 0:
		text += fmt.Sprintf(", as %d before it did, so no other worker was tried; the request may be the reason", repeats)
	case effects:
		text += ", so no other worker was tried: the request stores its response, or has tools that the server runs, and might do so twice; ask again"
	default:
		text += ", so no other worker was tried; ask again"
	}
	return conversation.NewError(http.StatusBadGateway, "worker_failed", "%s", text)
}

// broken returns the error for the end of a stream that worker broke off.
func broken(worker string) *conversation.Error {
	return conversation.NewError(http.StatusBadGateway, "worker_failed", "worker %s broke off its answer; ask again", worker)
}

// badBody returns the error that refuses a body that can't be parsed.
func badBody(err error) error {
	return conversation.NewError(http.StatusBadRequest, "invalid_json", "%v", err)
}

// badHeader returns the error that refuses the value of one of the gateway's own headers (or of
// a field of the body with the same meaning) called name.
func badHeader(name string, err error) error {
	return conversation.NewError(http.StatusBadRequest, "invalid_value", "%s: %v", name, err).At(name)
}

// noModel returns the error that refuses the model name, which no worker serves. models are the
// models of all workers; it lists at most 20 of them.
func noModel(name string, models []string) error {
	const most = 20
	more := ""
	if len(models) > most {
		models, more = models[:most], " and others"
	}
	return conversation.NewError(http.StatusNotFound, "model_not_found", "no worker serves the model %.100q; the models are %s%s", name, strings.Join(models, ", "), more).At("model")
}

// noWorkerInPool returns the error for a request that no worker in its pools can take. pools has
// the requested pool first, then the faster ones. model may be "".
func noWorkerInPool(pools []string, model string) error {
	faster := ""
	if len(pools) > 1 {
		faster = ", nor of the faster ones,"
	}
	what := "the request"
	if model != "" {
		what = fmt.Sprintf("a request for the model %.100q", model)
	}
	return conversation.NewError(http.StatusServiceUnavailable, "no_workers",
		"no worker of pool %q%s can take %s: there is none, or all are lost, draining or serve other models; the gateway's /v1/fleet lists the pool of each worker, and other targets choose other pools", pools[0], faster, what)
}

// translate returns the error to send to the client for err. An error without a translation
// becomes errInternal.
func translate(err error) *conversation.Error {
	e := (*conversation.Error)(nil)
	refusal := (*web.Refusal)(nil)
	full := (*router.QueueFullError)(nil)
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &refusal):
		return conversation.NewError(refusal.Status, refusal.Code, "%s", refusal.Message)
	case errors.Is(err, router.ErrNoWorkers):
		return errNoWorkers
	case errors.As(err, &full), errors.Is(err, router.ErrFull):
		return errTooMany
	case errors.Is(err, dispatch.ErrPatience):
		return errBusy
	case errors.Is(err, router.ErrRequest):
		return conversation.NewError(http.StatusBadRequest, "invalid_value", "%s", strings.TrimPrefix(err.Error(), "router: "))
	}
	return errInternal
}
