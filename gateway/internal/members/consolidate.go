package members

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/kv"
)

// Sockets are the ports at which the host of each worker publishes the ZMQ events of a further
// cache.
type Sockets struct {
	Port       int    // of the first rank; each further rank uses the next port
	ReplayPort int    // 0: no replays
	Topic      string // "": any
}

// subscribe makes the subscribers: one for the workers' own events, and one for each element of
// Config.Consolidate.
func (f *Fleet) subscribe() error {
	sinks := []events.Sink{f.cfg.Sink}
	if n := len(f.cfg.Consolidate); n > 0 {
		sinks = events.Consolidate(f.cfg.Sink, 1+n)
	}
	for i, sink := range sinks {
		cfg := events.SubscriberConfig{BlockTokens: f.cfg.BlockTokens, OnChange: f.eventsChanged}
		if i > 0 {
			port := f.cfg.Consolidate[i-1].Port
			cfg.OnChange = func(r kv.Rank, to events.State, err error) {
				f.log.Info("events of a worker's additional cache", zap.Uint64("worker", uint64(r.Worker)), zap.Uint32("rank", r.DP), zap.Int("port", port), zap.Stringer("state", to), zap.Error(err))
			}
		}
		s, err := events.NewSubscriber(cfg, sink)
		if err != nil {
			return err
		}
		f.subscribers = append(f.subscribers, s)
	}
	return nil
}

// followFurther follows the events of rank w from each element of Config.Consolidate. The error
// joins those of all elements.
func (k *keeper) followFurther(w kv.Rank) error {
	var errs []error
	for i, s := range k.f.cfg.Consolidate {
		at := func(port int) string { return "tcp://" + net.JoinHostPort(k.m.url.Hostname(), strconv.Itoa(port)) }
		replay := ""
		if s.ReplayPort > 0 {
			replay = at(s.ReplayPort)
		}
		src, err := k.f.sockets(w.DP, at(s.Port), replay, s.Topic)
		if err == nil {
			err = k.f.subscribers[1+i].Add(w, src, events.Follow{AnyRank: true})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("rank %d, port %d: %w", w.DP, s.Port, err))
		}
	}
	return errors.Join(errs...)
}
