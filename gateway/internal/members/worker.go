package members

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/coppice-llm/coppice/events/card"
)

// Worker is the address of a worker, and facts that it does not publish itself. Workers that
// answer at /v1/worker, as coppice serve does, need only a URL. The JSON names are those of the file of
// coppice route --workers-file.
type Worker struct {
	URL string `json:"url"` // http://host:port of its OpenAI interface
	// Name defaults to the worker's own name, or else host-port.
	Name string `json:"name"`
	// Pool is the worker's pool in Config.Pools. Default: as in its card.
	Pool string `json:"pool"`
	// Events is the address of the worker's ZMQ PUB socket, tcp://host:port, and Replay that of
	// its ROUTER socket. They are for workers without a card. "none": the contents of its cache
	// are guessed.
	Events string `json:"events"`
	Replay string `json:"replay"`
	Topic  string `json:"topic"` // the topic of the worker's events; "": any
	// Ranks is the number of data-parallel ranks. Each has its own cache, and publishes its
	// events on the port after that of the rank before. A request selects a rank by
	// X-Data-Parallel-Rank, vLLM's header. Default 1.
	Ranks int `json:"ranks"`
	// PoolTokens is the size of the KV pool and MaxRunning the number of concurrent requests,
	// both per rank. 0: unknown.
	PoolTokens int `json:"pool_tokens"`
	MaxRunning int `json:"max_running"`
}

// Validate reports all faults at once.
func (w *Worker) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("gateway: worker %.100q: "+format, append([]any{w.URL}, args...)...))
	}
	if u, err := url.Parse(w.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" {
		bad("want a URL like http://host:port")
	}
	if w.Name != "" {
		if err := card.CheckName(w.Name); err != nil {
			errs = append(errs, fmt.Errorf("gateway: worker %.100q: %w", w.URL, err))
		}
	}
	if w.Pool != "" {
		if err := card.CheckPool(w.Pool); err != nil {
			errs = append(errs, fmt.Errorf("gateway: worker %.100q: %w", w.URL, err))
		}
	}
	if w.Replay != "" && (w.Events == "" || w.Events == noEvents) {
		bad("Replay is given without Events: say where its events are")
	}
	if w.Ranks < 0 || w.Ranks > 1024 {
		bad("Ranks is %d, want 1 to 1024", w.Ranks)
	}
	if w.PoolTokens < 0 || w.MaxRunning < 0 {
		bad("PoolTokens is %d and MaxRunning %d, want 0 (unknown) or more", w.PoolTokens, w.MaxRunning)
	}
	return errors.Join(errs...)
}

// noEvents is the value of Worker.Events for a worker without events.
const noEvents = "none"

// ValidateWorkers returns an error with the faults of all workers. Two workers with one URL are
// a fault.
func ValidateWorkers(all []Worker) error {
	var errs []error
	seen := map[string]bool{}
	for i := range all {
		errs = append(errs, all[i].Validate())
		if seen[all[i].URL] {
			errs = append(errs, fmt.Errorf("gateway: worker %.100q is given twice", all[i].URL))
		}
		seen[all[i].URL] = true
	}
	return errors.Join(errs...)
}

// sameWorker reports whether two configurations are equal. Ranks 0 and 1 mean the same.
func sameWorker(a, b Worker) bool {
	a.Ranks, b.Ranks = max(a.Ranks, 1), max(b.Ranks, 1)
	return a == b
}

// refusal is a permanent reason to keep a worker out of the fleet.
type refusal struct{ error }

// refuse returns a refusal.
func refuse(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }

// refused returns err as a refusal, nil for nil.
func refused(err error) error {
	if err == nil {
		return nil
	}
	return refusal{err}
}
