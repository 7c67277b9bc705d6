// Package natstest owns a NATS server inside this process, for tests and for
// fleets on one machine. It never serves more than events: no accounts, no
// clustering.
//
//	server, err := natstest.Start(natstest.Config{Addr: "127.0.0.1:4222"})
//	...
//	defer server.Close()
package natstest

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Config configures a server.
type Config struct {
	Addr           string // listen address, host:port; port 0: any free port
	User, Password string // required of clients; "": none
}

// Server is a running server.
type Server struct{ ns *server.Server }

// Start starts a server. It fails if the address is in use, or if the server is not ready
// within a minute.
func Start(cfg Config) (*Server, error) {
	host, text, err := net.SplitHostPort(cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("embedded: address %q: %w", cfg.Addr, err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("embedded: port %q: %w", text, err)
	}
	options := &server.Options{Host: host, Port: int(port), NoSigs: true, NoLog: true, Username: cfg.User, Password: cfg.Password}
	if port == 0 {
		options.Port = server.RANDOM_PORT
	} else { // the server itself reports no error and retries forever
		l, err := net.Listen("tcp", cfg.Addr)
		if err != nil {
			return nil, fmt.Errorf("embedded: %w", err)
		}
		l.Close()
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

// URL returns the address for clients.
func (s *Server) URL() string { return s.ns.ClientURL() }

// Close stops the server and waits for its end.
func (s *Server) Close() {
	s.ns.Shutdown()
	s.ns.WaitForShutdown()
}
