package endpoints

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/gateway"
)

// MaxFileBytes is the size of the largest file of workers.
const MaxFileBytes = 32 << 20

// MaxAddresses is the most addresses of a name that are used, in ascending order.
const MaxAddresses = 4096

// Parse reads a list of workers, {"workers": [{"url": "http://host:8080"}]}, in the form of coppice route --workers-file.
func Parse(text []byte) ([]gateway.WorkerConfig, error) {
	var file struct {
		Workers *[]gateway.WorkerConfig `json:"workers"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&file)
	if err == nil && d.More() {
		err = errors.New("there is more after its end")
	}
	if err == nil && file.Workers == nil { // probably the wrong file
		err = errors.New(`it has no "workers"`)
	}
	if err != nil {
		return nil, fmt.Errorf(`%w; want {"workers": [{"url": "http://host:8080"}]}`, err)
	}
	return *file.Workers, nil
}

// Watcher keeps a gateway's list of workers up to date. Apply is required.
type Watcher struct {
	// Given are workers that do not change, and File is the path of a file with more; "": none.
	Given []gateway.WorkerConfig
	File  string
	// Every is the time between two looks at the file and at the DNS server. Default 5 s.
	Every time.Duration
	// LookUp returns the addresses of a host. Default: the system's resolver.
	LookUp func(ctx context.Context, host string) ([]netip.Addr, error)
	// Apply takes the whole list when it has changed. After an error it is called again.
	Apply func([]gateway.WorkerConfig) error
	Log   *zap.Logger

	known   map[string][]netip.Addr // by host, the last answer
	applied []gateway.WorkerConfig
	said    string // the last error, logged once
}

// Run applies the list, and again after each change, until ctx ends. Only the first read of the file and an error of the
// first Apply end it with an error; a name that does not resolve is asked for again.
func (w *Watcher) Run(ctx context.Context) error {
	if w.Every <= 0 {
		w.Every = 5 * time.Second
	}
	if w.LookUp == nil {
		w.LookUp = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	if w.Log == nil {
		w.Log = zap.NewNop()
	}
	w.known = map[string][]netip.Addr{}
	if err := w.look(ctx); err != nil {
		return err
	}
	t := time.NewTicker(w.Every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			w.say(w.look(ctx))
		}
	}
}

// say logs an error unless it is that of the last look.
func (w *Watcher) say(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != w.said && text != "" {
		w.Log.Error("endpoints not loaded", zap.Error(err))
	}
	w.said = text
}

// look reads the file, resolves all names, and applies the list if it has changed.
func (w *Watcher) look(ctx context.Context) error {
	all := slices.Clone(w.Given)
	if w.File != "" {
		more, err := readFile(w.File)
		if err != nil {
			return fmt.Errorf("workers' file %s: %w", w.File, err)
		}
		all = append(all, more...)
	}
	var list []gateway.WorkerConfig
	for _, c := range all {
		list = append(list, w.resolve(ctx, c)...)
	}
	slices.SortStableFunc(list, func(a, b gateway.WorkerConfig) int { return strings.Compare(a.URL, b.URL) })
	list = slices.CompactFunc(list, func(a, b gateway.WorkerConfig) bool { return a.URL == b.URL })
	if w.applied != nil && slices.Equal(list, w.applied) {
		return nil
	}
	if err := w.Apply(list); err != nil {
		w.applied = nil // some of it may have been applied
		return err
	}
	w.applied = append([]gateway.WorkerConfig{}, list...)
	w.Log.Info("endpoints loaded", zap.Int("workers", len(list)))
	return nil
}

// readFile reads a file of workers.
func readFile(path string) ([]gateway.WorkerConfig, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err == nil && len(text) > MaxFileBytes {
		err = fmt.Errorf("it has more than %d bytes", MaxFileBytes)
	}
	if err != nil {
		return nil, err
	}
	return Parse(text)
}

// resolve returns c for each address of its host. A worker without a valid URL stays as it is: the gateway refuses it. While a name does not resolve, its last addresses stay: a DNS server that is away loses no worker.
func (w *Watcher) resolve(ctx context.Context, c gateway.WorkerConfig) []gateway.WorkerConfig {
	c.URL = strings.TrimRight(c.URL, "/")
	u, err := url.Parse(c.URL)
	if err != nil || u.Hostname() == "" {
		return []gateway.WorkerConfig{c}
	}
	host := u.Hostname()
	if _, err := netip.ParseAddr(host); err == nil {
		return []gateway.WorkerConfig{c}
	}
	addrs, err := w.LookUp(ctx, host)
	if err != nil {
		w.Log.Warn("name not resolved", zap.String("host", host), zap.Int("kept", len(w.known[host])), zap.Error(err))
		addrs = w.known[host]
	}
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	addrs = slices.Compact(addrs)
	addrs = addrs[:min(len(addrs), MaxAddresses)]
	w.known[host] = addrs
	var all []gateway.WorkerConfig
	for _, addr := range addrs {
		one := c
		one.URL, one.Events, one.Replay = at(c.URL, host, addr), at(c.Events, host, addr), at(c.Replay, host, addr)
		if len(addrs) > 1 {
			one.Name = "" // names must be unique
		}
		all = append(all, one)
	}
	return all
}

// at returns a URL with an address in place of the host, if it names that host.
func at(text, host string, addr netip.Addr) string {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() != host {
		return text
	}
	port := u.Port()
	u.Host = addr.String()
	if addr.Is6() {
		u.Host = "[" + addr.String() + "]"
	}
	if port != "" {
		u.Host = net.JoinHostPort(addr.String(), port)
	}
	return u.String()
}
