package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/coppice-llm/coppice/gateway"
	"github.com/coppice-llm/coppice/integrations/envoy/endpoints"
	"github.com/coppice-llm/coppice/integrations/envoy/extproc"
)

// Run is called by kong.
func (c *command) Run(ctx context.Context) error {
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	log := c.log()
	defer log.Sync()
	return c.serve(ctx, signals, log, nil)
}

// log returns a logger to standard error.
func (c *command) log() *zap.Logger {
	cfg := zap.NewProductionEncoderConfig()
	cfg.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	out := zapcore.Lock(os.Stderr)
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(cfg), out, c.LogLevel), zap.ErrorOutput(out))
}

// addresses are those at which a picker answers.
type addresses struct{ listen, health, http net.Addr }

// picker is a running picker.
type picker struct {
	g       *gateway.Gateway
	log     *zap.Logger
	at      addresses
	grpc    *grpc.Server
	probes  *grpc.Server // nil without --health
	health  *health.Server
	failed  chan error
	running sync.WaitGroup
}

// serve runs a picker until a signal comes or a part fails. It calls started, unless nil, once the picker answers.
func (c *command) serve(ctx context.Context, signals <-chan os.Signal, log *zap.Logger, started func(addresses)) (err error) {
	ctx, stop := context.WithCancel(ctx)
	p := &picker{log: log, failed: make(chan error, 8), health: health.NewServer()}
	defer p.running.Wait()
	defer stop()
	cfg, err := c.gateway(log)
	if err != nil {
		return err
	}
	if cfg.AllowHosts = c.AllowHost; cfg.Workers != nil {
		return errors.New("workers come from the endpoint flags")
	}
	source, err := c.source(log)
	if err != nil {
		return err
	}
	if p.g, err = gateway.New(cfg); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.g.Close()) }()
	server, err := extproc.New(extproc.Config{
		Gateway: p.g, Fallbacks: c.Fallbacks, Priority: c.priority(source), WritePriority: c.WritePriority, Conformance: c.Conformance,
	})
	if err != nil {
		return err
	}
	if err := p.listen(c, server); err != nil {
		return err
	}
	defer p.stop()
	p.start(func() error {
		return source.run(ctx, func(all []gateway.WorkerConfig) error { return p.g.SetWorkers(c.publishAt(all)) })
	})
	p.running.Go(func() { p.watch(ctx) })
	log.Info("picking", zap.Stringer("listen", p.at.listen))
	if started != nil {
		started(p.at)
	}
	select {
	case err := <-p.failed:
		return err
	case s := <-signals:
		log.Info("draining", zap.Stringer("signal", s), zap.Duration("limit", c.Drain))
		p.drain(c.Drain, signals)
		return nil
	}
}

// start runs a part of the picker; its error ends the picker.
func (p *picker) start(run func() error) {
	p.running.Go(func() {
		if err := run(); err != nil {
			select {
			case p.failed <- err:
			default:
			}
		}
	})
}

// listen opens all ports and answers at them.
func (p *picker) listen(c *command, server *extproc.Server) error {
	var opened []net.Listener
	open := func(flag, addr string) (net.Listener, error) {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		opened = append(opened, l)
		return l, nil
	}
	fail := func(err error) error {
		for _, l := range opened {
			l.Close()
		}
		return err
	}
	security, err := c.credentials()
	if err != nil {
		return err
	}
	main, err := open("--listen", c.Listen)
	if err != nil {
		return fail(err)
	}
	p.at.listen = main.Addr()
	var probes, web net.Listener
	if c.Health != "" {
		if probes, err = open("--health", c.Health); err != nil {
			return fail(err)
		}
		p.at.health = probes.Addr()
	}
	if c.HTTP != "" {
		if web, err = open("--http", c.HTTP); err != nil {
			return fail(err)
		}
		p.at.http = web.Addr()
	}
	// Envoy multiplexes all requests over few connections, so the limit of streams is that of open requests.
	p.grpc = grpc.NewServer(security, grpc.MaxConcurrentStreams(uint32(c.MaxOpen)), grpc.MaxRecvMsgSize(maxMessage),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}))
	extprocv3.RegisterExternalProcessorServer(p.grpc, server)
	healthpb.RegisterHealthServer(p.grpc, p.health)
	p.report(false)
	p.start(func() error { return p.grpc.Serve(main) })
	if probes != nil {
		p.probes = grpc.NewServer()
		healthpb.RegisterHealthServer(p.probes, p.health)
		p.start(func() error { return p.probes.Serve(probes) })
	}
	if web != nil {
		p.start(func() error { return p.g.Serve(web) })
	}
	return nil
}

// maxMessage is the largest message from Envoy, in bytes: a chunk of a body is at most as long as Envoy's buffer.
const maxMessage = 16 << 20

// services are the names for which the picker reports its health. It is alive as long as it answers.
var services = []string{"", "readiness", extprocv3.ExternalProcessor_ServiceDesc.ServiceName}

// report sets whether the picker takes requests.
func (p *picker) report(ready bool) {
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if ready {
		status = healthpb.HealthCheckResponse_SERVING
	}
	for _, name := range services {
		p.health.SetServingStatus(name, status)
	}
	p.health.SetServingStatus("liveness", healthpb.HealthCheckResponse_SERVING)
}

// watchEvery is the time between two looks at whether a worker is ready.
const watchEvery = 250 * time.Millisecond

// watch keeps the reported health up to date.
func (p *picker) watch(ctx context.Context) {
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			p.report(p.g.Ready() == nil)
		}
	}
}

// drain ends the picker in order: it reports that it takes no more requests, then lets the open ones finish.
func (p *picker) drain(limit time.Duration, signals <-chan os.Signal) {
	p.health.Shutdown()
	ended := make(chan struct{})
	p.running.Go(func() {
		p.grpc.GracefulStop()
		close(ended)
	})
	select {
	case <-ended:
	case <-time.After(limit):
		p.log.Warn("requests were still open")
	case <-signals:
	}
}

// stop ends everything at once.
func (p *picker) stop() {
	p.grpc.Stop()
	if p.probes != nil {
		p.probes.Stop()
	}
}

// publishAt sets the addresses at which workers publish events, as --events zmq://*:PORT says.
func (c *command) publishAt(all []gateway.WorkerConfig) []gateway.WorkerConfig {
	if c.ports == nil {
		return all
	}
	for i := range all {
		w := &all[i]
		u, err := url.Parse(w.URL)
		if err != nil || w.Events != "" {
			continue
		}
		w.Events = "tcp://" + net.JoinHostPort(u.Hostname(), strconv.Itoa(c.ports.Port))
		if w.Replay == "" && c.ports.Replay > 0 {
			w.Replay = "tcp://" + net.JoinHostPort(u.Hostname(), strconv.Itoa(c.ports.Replay))
		}
		if w.Topic == "" {
			w.Topic = c.ports.Topic
		}
	}
	return all
}

// source is where the list of workers comes from.
type source struct {
	run      func(ctx context.Context, apply func([]gateway.WorkerConfig) error) error
	priority func(objective string) (int, bool) // nil: it knows none
}

// priority returns how objectives get their priorities: from flags first, then from the cluster.
func (c *command) priority(s *source) func(string) (int, bool) {
	return func(name string) (int, bool) {
		if p, ok := c.Objective[name]; ok || s.priority == nil {
			return p, ok
		}
		return s.priority(name)
	}
}

// source returns the source that the flags name.
func (c *command) source(log *zap.Logger) (*source, error) {
	given := len(c.Worker) > 0 || c.WorkersFile != ""
	switch cluster := c.Pool != "" || c.Service != ""; {
	case cluster && given:
		return nil, errors.New("--pool and --service exclude --worker and --workers-file")
	case cluster:
		return c.cluster(log)
	case !given && len(c.Events) == 1 && !strings.HasPrefix(c.Events[0], "nats:"):
		return nil, errors.New("there are no workers: give --worker, --workers-file, --pool or --service, or --events nats://… for those that register")
	}
	w := endpoints.Watcher{File: c.WorkersFile, Every: c.ResolveEvery, Log: log}
	for _, at := range c.Worker {
		w.Given = append(w.Given, gateway.WorkerConfig{URL: strings.TrimSpace(at)})
	}
	return &source{run: func(ctx context.Context, apply func([]gateway.WorkerConfig) error) error {
		w.Apply = apply
		return w.Run(ctx)
	}}, nil
}
