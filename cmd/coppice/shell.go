package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
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

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/internal/terminal"
	"github.com/coppice-llm/coppice/internal/web"
	"github.com/coppice-llm/coppice/server"
)

// logFlags configure the log.
type logFlags struct {
	LogLevel  zapcore.Level `name:"log-level" default:"info" help:"debug, info, warn or error."`
	LogFormat string        `name:"log-format" enum:"auto,console,json" default:"auto" help:"console, json, or auto: console on a terminal."`
}

// log returns a logger to standard error. It ignores SIGPIPE, which would end the process
// if the reader of standard error has gone. The log has neither lines of code nor stacks: errors
// concern the fleet or a client. No line is dropped: each request has one.
func (c *logFlags) log() *zap.Logger {
	signal.Ignore(syscall.SIGPIPE)
	cfg := zap.NewProductionEncoderConfig()
	cfg.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	cfg.EncodeDuration = zapcore.SecondsDurationEncoder
	encoder := zapcore.NewJSONEncoder
	if c.LogFormat == "console" || c.LogFormat == "auto" && term.IsTerminal(int(os.Stderr.Fd())) {
		encoder = zapcore.NewConsoleEncoder
		cfg.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		cfg.EncodeDuration = zapcore.StringDurationEncoder
	}
	out := zapcore.Lock(zapcore.AddSync(terminal.Err()))
	return zap.New(zapcore.NewCore(encoder(cfg), out, c.LogLevel), zap.ErrorOutput(out))
}

// checkAddr returns an error if the port of addr is out of range.
func checkAddr(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil // Listen returns a good error
	}
	if n, err := strconv.Atoi(port); err == nil && (n < 0 || n > math.MaxUint16) {
		return fmt.Errorf("--addr is %.100s: its port is %s, want 0 (any free port) to %d", addr, port, math.MaxUint16)
	}
	return nil
}

// siteFlags configure the host names and web origins that a server accepts.
type siteFlags struct {
	AllowHost []string `name:"allow-host" placeholder:"NAME" help:"Host name that a server without keys accepts besides IP addresses, localhost and its own name: llm.example.com or *.example.com. Other names get status 403, which prevents DNS rebinding. Repeat the flag, or separate names by commas."`
	CORS      []string `name:"cors" placeholder:"ORIGIN" help:"Origin of web pages that may call this server from a browser, for example https://app.example.com, or * for all. Default: only the server's own page."`
}

// check reports bad names and origins, before anything is opened.
func (c *siteFlags) check() error {
	_, err := web.NewSites(web.SitesConfig{AllowHosts: c.AllowHost, Origins: c.CORS})
	if err != nil {
		return fmt.Errorf("--allow-host or --cors: %w", err)
	}
	return nil
}

// hosts returns the accepted names: those of --allow-host, and the host of the URL reached, at
// which others reach this server, if it has one.
func (c *siteFlags) hosts(reached string) []string {
	if u, err := url.Parse(reached); err == nil && u.Hostname() != "" {
		return append(slices.Clone(c.AllowHost), u.Hostname())
	}
	return c.AllowHost
}

// serverFlags are the flags that serve and route share.
type serverFlags struct {
	PrintConfig printMode `name:"print-config" help:"Print each setting with its source, and exit. --print-config=json prints a file for --config, without keys."`
	APIKey      string    `name:"api-key" placeholder:"KEY" help:"API key that requests must carry; it has admin rights. The workers of a router must accept it too. Prefer COPPICE_API_KEY: other users can read command lines."`
	APIKeyFile  string    `name:"api-key-file" type:"path" placeholder:"FILE" help:"File of API keys, one per line: \"tenant: key\" or \"tenant: key admin\" (admins may flush, pin, profile and see the fleet). A router can use its workers' file."`
	Page        bool      `default:"true" negatable:"" help:"Serve the live page at /."`
	siteFlags
	TLSCert string `name:"tls-cert" type:"path" placeholder:"FILE" help:"Certificate chain (PEM). Enables TLS, together with --tls-key."`
	TLSKey  string `name:"tls-key" type:"path" placeholder:"FILE" help:"Private key of --tls-cert (PEM)."`
	logFlags

	Drain     time.Duration `default:"30s" min:"0s" max:"8760h" help:"Time for open requests to finish after SIGTERM or an interrupt. A second signal ends them at once."`
	MaxBody   byteSize      `name:"max-body" default:"8MiB" min:"1B" max:"1TiB" help:"Largest request body."`
	MaxBodies byteSize      `name:"max-bodies" default:"256MiB" help:"Most bytes of the bodies of all open requests. A request beyond it gets status 503."`
	memoryFlags
	MaxConns     int           `name:"max-conns" default:"8192" min:"1" max:"1<<24" help:"Most open connections. Beyond it, a few more get answers to /health and /ready, and status 503 for anything else."`
	WriteTimeout time.Duration `name:"write-timeout" default:"30s" min:"1ms" max:"24h" help:"A client that reads nothing of its answer for this long loses its request."`
}

// leastMaxMemory is the least --max-memory, in bytes: the program, and some requests.
const leastMaxMemory = 64 << 20

// check reports faults of combinations of flags.
func (c *serverFlags) check() error {
	var faults bounds.Faults
	faults.Add(c.siteFlags.check())
	faults.If(c.MaxBodies < c.MaxBody || c.MaxBodies > 1<<40, "--max-bodies is %v, want --max-body (%v) to 1TiB", c.MaxBodies, c.MaxBody)
	faults.If(c.MaxMemory > 0 && c.MaxMemory < leastMaxMemory, "--max-memory is %v, want at least %v", c.MaxMemory, byteSize(leastMaxMemory))
	return faults.Err()
}

// open reads the keys and certificates and makes the log.
func (c *serverFlags) open(s *settings) (keys []server.Key, certificates *tls.Config, log *zap.Logger, err error) {
	if keys, err = readKeys(c.APIKey, c.APIKeyFile); err != nil {
		return nil, nil, nil, err
	}
	if certificates, err = readCertificates(c.TLSCert, c.TLSKey); err != nil {
		return nil, nil, nil, err
	}
	log = c.log()
	s.warn(log)
	return keys, certificates, log, nil
}

// greeting is an example request to a server: the end of its path, and its body.
type greeting struct{ path, body string }

// Examples of requests. A question to a model without a conversation around it may be followed by its end, and not by an answer.
var (
	greetChat = greeting{"chat/completions", `{"messages": [{"role": "user", "content": "What is light?"}], "max_tokens": 32}`}
	greetText = greeting{"completions", `{"prompt": "Light is", "max_tokens": 32}`}
)

// greet prints an example request to the server at this address, and the URL of path, where the
// server can be watched, unless path is empty. keys says that requests need a key; if they need
// none and other machines can reach the server, greet says so.
func (c *serverFlags) greet(w io.Writer, at net.Addr, example greeting, keys bool, path string) {
	url, auth := "http://"+reachable(at.String()), ""
	if c.TLSCert != "" {
		url = "https://" + reachable(at.String())
	}
	if keys {
		auth = " -H 'Authorization: Bearer KEY'"
	}
	fmt.Fprintf(w, "coppice: try  curl %s/v1/%s%s -H 'Content-Type: application/json' -d '%s'\n", url, example.path, auth, example.body)
	if path != "" {
		fmt.Fprintf(w, "coppice: look at %s%s\n", url, path)
	}
	if host, _, err := net.SplitHostPort(at.String()); err == nil && !keys && !net.ParseIP(host).IsLoopback() {
		fmt.Fprintln(w, "coppice: other machines can reach this server, and it needs no key: see --api-key-file")
	}
}

// readCertificates returns the TLS configuration; nil if neither file is given.
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

// unlessEnded calls f, which takes long, and returns its results. If ctx ends first, because of a
// signal, it returns an error at once; until completes the sentence "ended by a signal before". f
// then continues in the background until the process ends.
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

// drainer is a server that can shut down gracefully or close at once.
type drainer interface {
	Shutdown(context.Context) error
	Close() error
}

// drain shuts srv down: it waits for open requests to end, until the limit or a second signal. The
// remaining requests then end with an error to their clients. A third signal closes the server at
// once.
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
		log.Warn("open requests were ended", zap.Duration("limit", limit))
		return nil
	}
	return err
}
