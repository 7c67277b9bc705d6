package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/events/eventurl"
	"github.com/coppice-llm/coppice/gateway"
	"github.com/coppice-llm/coppice/internal/bounds"
)

// configuredWorker is a worker with the place where it is configured, for error messages.
type configuredWorker struct {
	gateway.WorkerConfig
	by string // the flag, or the file and the worker's number in it
}

// workers returns the workers given by flags and by the contents of the workers' file. It
// reports all faults at once.
func (c *routeCmd) workers(file []byte) ([]gateway.WorkerConfig, error) {
	var configured []configuredWorker
	for _, text := range c.Worker {
		at := strings.TrimRight(strings.TrimSpace(text), "/")
		configured = append(configured, configuredWorker{gateway.WorkerConfig{URL: at}, fmt.Sprintf("--worker %.100q", eventurl.Redact(at))})
	}
	if c.WorkersFile != "" {
		more, err := parseWorkers(file)
		if err != nil {
			return nil, fmt.Errorf("--workers-file %s: %w", c.WorkersFile, err)
		}
		for i, w := range more {
			configured = append(configured, configuredWorker{w, fmt.Sprintf("--workers-file %s: worker %d, %.100q", c.WorkersFile, i+1, eventurl.Redact(w.URL))})
		}
	}
	var all []gateway.WorkerConfig
	var faults bounds.Faults
	urls, names := map[string]string{}, map[string]string{}
	for i := range configured {
		w := &configured[i]
		err := w.check(c.ports)
		faults.If(err != nil, "%s: %w", w.by, err)
		first, namesake := urls[w.URL], names[w.Name]
		faults.If(first != "", "%s: it is given twice, first by %s", w.by, first)
		faults.If(first == "" && namesake != "" && w.Name != "", "%s: its \"name\" is also that of %s; names must be unique", w.by, namesake)
		urls[w.URL], names[w.Name] = w.by, w.by
		all = append(all, w.WorkerConfig)
	}
	return all, faults.Err()
}

// check reports all faults of a worker. If ports is not nil, all workers publish at these ports,
// and check first sets the addresses of this worker's events.
func (w *configuredWorker) check(ports *eventurl.ZMQ) error {
	var faults bounds.Faults
	u, err := parseURL(w.URL)
	if faults.Add(err); err == nil && ports != nil && w.Events == "" {
		w.publishesAt(u.Hostname(), ports)
	}
	if w.Name != "" {
		faults.Add(card.CheckName(w.Name))
	}
	if w.Pool != "" {
		faults.Add(card.CheckPool(w.Pool))
	}
	faults.If(w.PoolTokens < 0 || w.MaxRunning < 0, `"pool_tokens" is %d and "max_running" %d, want 0 (unknown) or more`, w.PoolTokens, w.MaxRunning)
	if w.Ranks < 0 || w.Ranks > 1024 {
		faults.If(true, `"ranks" is %d, want 1 to 1024`, w.Ranks)
		return faults.Err()
	}
	events := w.Events != "" && w.Events != "none"
	faults.If(w.Replay != "" && !events, `"replay" needs "events"`)
	host, first := "", 0
	if events {
		host, first, err = socketPorts(w.Events, w.Ranks)
		faults.If(err != nil, `"events" %w, or none`, err)
	}
	if w.Replay != "" {
		other, replay, err := socketPorts(w.Replay, w.Ranks)
		faults.If(err != nil, `"replay" %w`, err)
		ranks := max(w.Ranks, 1)
		faults.If(err == nil && other == host && max(first, replay)-min(first, replay) < ranks,
			"its ranks need one port each: those for events, %d to %d, and those for replays, %d to %d, overlap; choose ports further apart",
			first, first+ranks-1, replay, replay+ranks-1)
	}
	return faults.Err()
}

// publishesAt sets the addresses of the worker's events to these ports of its host, except
// those that the file gives.
func (w *configuredWorker) publishesAt(host string, ports *eventurl.ZMQ) {
	w.Events = "tcp://" + net.JoinHostPort(host, strconv.Itoa(ports.Port))
	if w.Replay == "" && ports.Replay > 0 {
		w.Replay = "tcp://" + net.JoinHostPort(host, strconv.Itoa(ports.Replay))
	}
	if w.Topic == "" {
		w.Topic = ports.Topic
	}
}

// parseURL parses the URL of a worker.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || strings.ContainsAny(text, "?#"):
		return nil, errors.New("want a URL like http://host:8080")
	case strings.Contains(text, "@"):
		return nil, errors.New("want a URL without a user, like http://host:8080; the key for workers is --worker-key")
	case strings.HasSuffix(u.Path, "/v1"):
		return nil, errors.New("want a URL without /v1, which the router adds")
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && (err != nil || port == 0) {
		return nil, fmt.Errorf("its port is %.20s, want 1 to 65535", u.Port())
	}
	return u, nil
}

// socketPorts parses a ZMQ endpoint that stands for one port per data-parallel rank of a worker:
// rank i has port first+i. Other forms, and ports above 65535, are errors.
func socketPorts(endpoint string, ranks int) (host string, first int, err error) {
	address, ok := strings.CutPrefix(endpoint, "tcp://")
	host, text, err := net.SplitHostPort(address)
	port, err2 := strconv.ParseUint(text, 10, 16)
	if !ok || err != nil || err2 != nil || host == "" || host == "*" || port == 0 {
		return "", 0, fmt.Errorf("is %.80q, want tcp://host:5557", endpoint)
	}
	if last := int(port) + ranks - 1; last > 65535 {
		return "", 0, fmt.Errorf("is %.80q; its %d ranks need consecutive ports, and there is no port %d; want one like tcp://host:5557", endpoint, ranks, last)
	}
	return host, int(port), nil
}

// maxWorkersFile bounds a file of workers, in bytes: 512 for each of 65536 workers.
const maxWorkersFile = 32 << 20

// readWorkers returns the contents of the file of workers; nil if there is none.
func (c *routeCmd) readWorkers() ([]byte, error) {
	return readFlagFile("--workers-file", c.WorkersFile, maxWorkersFile)
}

// workersForm is the form of a file of workers, for messages.
const workersForm = `want {"workers": [{"url": "http://host:8080"}]}`

// parseWorkers parses a file of workers. It does not validate the single workers: see
// configuredWorker.check.
func parseWorkers(data []byte) ([]gateway.WorkerConfig, error) {
	var file struct {
		Workers *[]gateway.WorkerConfig `json:"workers"`
	}
	if err := strict(data, &file); err != nil {
		return nil, fmt.Errorf("%w; %s", err, workersForm)
	}
	if file.Workers == nil { // probably the wrong file
		return nil, errors.New("it has no \"workers\"; " + workersForm)
	}
	for i := range *file.Workers {
		w := &(*file.Workers)[i]
		w.URL = strings.TrimRight(w.URL, "/")
	}
	return *file.Workers, nil
}

// watchedWorkers returns the watch of the file of workers. When the file changes, the watch sets
// g's workers. has is the contents that g started with.
func (c *routeCmd) watchedWorkers(has []byte, g *gateway.Gateway) *watched {
	w := &watched{what: "workers' file", path: c.WorkersFile, has: has, read: c.readWorkers}
	w.take = func(data []byte) (zap.Field, error) {
		all, err := c.workers(data)
		if err == nil {
			if err = g.SetWorkers(all); err != nil {
				w.has, w.bad = nil, nil // g may have taken some of the workers: try again every second
			}
		}
		return zap.Int("workers", len(all)), err
	}
	return w
}
