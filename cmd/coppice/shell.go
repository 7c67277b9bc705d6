package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/term"

	"github.com/coppice-llm/coppice/internal/sites"
)

// logFlags say what is logged, and how.
type logFlags struct {
	LogLevel  zapcore.Level `name:"log-level" default:"info" help:"debug, info, warn or error."`
	LogFormat string        `name:"log-format" enum:"auto,console,json" default:"auto" help:"console, json, or auto: console on a terminal."`
}

// log goes to standard error. When nobody reads that any more, the process goes on: a write
// to a broken pipe there would end it by a signal otherwise.
func (c *logFlags) log() (*zap.Logger, error) {
	signal.Ignore(syscall.SIGPIPE)
	cfg := zap.NewProductionConfig()
	cfg.Level = zap.NewAtomicLevelAt(c.LogLevel)
	cfg.Sampling = nil                                    // a line for each request means each
	cfg.DisableCaller, cfg.DisableStacktrace = true, true // an error is of the fleet or a client, not of a line of ours
	cfg.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	cfg.EncoderConfig.EncodeDuration = zapcore.SecondsDurationEncoder
	if c.LogFormat == "console" || c.LogFormat == "auto" && term.IsTerminal(int(os.Stderr.Fd())) {
		cfg.Encoding = "console"
		cfg.EncoderConfig.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		cfg.EncoderConfig.EncodeDuration = zapcore.StringDurationEncoder
	}
	return cfg.Build()
}

// checkAddr reports an address whose port can't be.
func checkAddr(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil // listening says why
	}
	if n, err := strconv.Atoi(port); err == nil && (n < 0 || n > math.MaxUint16) {
		return fmt.Errorf("--addr is %.100s: its port is %s, want 0 (any that is free) to %d", addr, port, math.MaxUint16)
	}
	return nil
}

// doorFlags say which hosts and web pages a server lets in.
type doorFlags struct {
	AllowHost []string `name:"allow-host" placeholder:"NAME" help:"Name that this server answers to without keys, beside IP addresses, localhost and its own: llm.example.com, or *.example.com. Others get status 403, as a web page could give its own name this address. Repeated or separated by commas."`
	CORS      []string `name:"cors" placeholder:"ORIGIN" help:"Web pages that may call from a browser, as https://app.example.com, or * for all. Default: only the server's own page."`
}

// check reports names and origins that can't be, before anything is opened.
func (c *doorFlags) check() error {
	_, err := sites.New(sites.Config{AllowHosts: c.AllowHost, Origins: c.CORS})
	if err != nil {
		return fmt.Errorf("--allow-host or --cors: %w", err)
	}
	return nil
}

// hosts are the names given, and that of a URL by which others were told to reach the server.
func (c *doorFlags) hosts(reached string) []string {
	if u, err := url.Parse(reached); err == nil && u.Hostname() != "" {
		return append(slices.Clone(c.AllowHost), u.Hostname())
	}
	return c.AllowHost
}

// readCertificates is nil without any.
func readCertificates(cert, key string) (*tls.Config, error) {
	if (cert == "") != (key == "") {
		return nil, errors.New("--tls-cert and --tls-key belong together: give both")
	}
	if cert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s, --tls-key %s: %w", cert, key, err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}, nil
}

// unlessEnded does what takes long, or gives up when ctx ends, by a signal: the process then
// ends, and with it what f has begun.
func unlessEnded[T any](ctx context.Context, until string, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		v, err := f()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("ended by a signal before %s", until)
	}
}

// drainer is a server that can end in two ways.
type drainer interface {
	Shutdown(context.Context) error
	Close() error
}

// drain lets requests end, until the limit or a second signal. They are told then; a third
// signal spares that.
func drain(srv drainer, limit time.Duration, signals <-chan os.Signal, log *zap.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	down := make(chan error, 1)
	go func() { down <- srv.Shutdown(ctx) }()
	var err error
	select {
	case err = <-down:
	case s := <-signals:
		log.Warn("ending at once", zap.Stringer("signal", s))
		cancel()
		select {
		case err = <-down:
		case <-signals:
			err = errors.Join(srv.Close(), <-down)
		}
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		log.Warn("requests had to be ended", zap.Duration("limit", limit))
		return nil
	}
	return err
}
