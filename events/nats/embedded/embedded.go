// Package embedded owns a NATS server inside this process, for tests and for
// fleets on one machine. It never serves more than events: no accounts, no
// clustering.
//
//	server, err := embedded.Start(embedded.Config{Addr: "127.0.0.1:4222", Dir: dir})
//	...
//	defer server.Close()
package embedded

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Config of a server.
type Config struct {
	Addr      string // where it listens: host:port, port 0 = any that is free
	Dir       string // of JetStream's files; required, also for streams in memory
	MaxMemory int64  // of JetStream: 1 GiB
	MaxStore  int64  // of JetStream: 4 GiB

	User, Password string // that clients must give; "": they need none
	Core           bool   // without JetStream: registration and replicas work, events don't
}

// Server is a running server.
type Server struct{ ns *server.Server }

// Start fails if the address can't be listened on, or the server does not within a minute.
func Start(cfg Config) (*Server, error) {
	host, text, err := net.SplitHostPort(cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("embedded: address %q: %w", cfg.Addr, err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("embedded: port %q: %w", text, err)
	}
	if cfg.Dir == "" {
		return nil, errors.New("embedded: Dir is empty, JetStream needs one")
	}
	options := &server.Options{Host: host, Port: int(port), JetStream: !cfg.Core, StoreDir: cfg.Dir, NoSigs: true, NoLog: true,
		JetStreamMaxMemory: cfg.MaxMemory, JetStreamMaxStore: cfg.MaxStore,
		Username: cfg.User, Password: cfg.Password}
	if port == 0 {
		options.Port = server.RANDOM_PORT
	} else { // the server itself would not say what is wrong, but try for ever
		l, err := net.Listen("tcp", cfg.Addr)
		if err != nil {
			return nil, fmt.Errorf("embedded: %w", err)
		}
		l.Close()
	}
	if options.JetStreamMaxMemory == 0 {
		options.JetStreamMaxMemory = 1 << 30
	}
	if options.JetStreamMaxStore == 0 {
		options.JetStreamMaxStore = 4 << 30
	}
	ns, err := server.NewServer(options)
	if err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	ns.Start()
	if !ns.ReadyForConnections(time.Minute) {
		ns.Shutdown()
		ns.WaitForShutdown()
		return nil, fmt.Errorf("embedded: no server at %s within a minute", cfg.Addr)
	}
	return &Server{ns}, nil
}

// URL is where clients connect.
func (s *Server) URL() string { return s.ns.ClientURL() }

// Close stops the server and waits for its end.
func (s *Server) Close() {
	s.ns.Shutdown()
	s.ns.WaitForShutdown()
}
