package zmq

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// parse converts tcp://host:port or ipc://path for net.Dial and net.Listen. The host * means
// every address.
func parse(endpoint string) (network, address string, err error) {
	if path, ok := strings.CutPrefix(endpoint, "ipc://"); ok && path != "" {
		return "unix", path, nil
	}
	address, ok := strings.CutPrefix(endpoint, "tcp://")
	if !ok {
		return "", "", fmt.Errorf("zmq: endpoint %q is neither tcp://host:port nor ipc://path", endpoint)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", "", fmt.Errorf("zmq: endpoint %q: %w", endpoint, err)
	}
	if host == "*" {
		host = ""
	}
	return "tcp", net.JoinHostPort(host, port), nil
}

// binds reports whether a publisher's socket listens at the endpoint instead of connecting to
// it. The rule is vLLM's: a socket binds if the endpoint has no single address to connect to.
func binds(endpoint string) bool {
	return strings.Contains(endpoint, "*") || strings.Contains(endpoint, "::") || strings.HasPrefix(endpoint, "ipc://")
}

// RankEndpoint returns the endpoint of data-parallel rank dp of an engine, given the endpoint of
// rank 0. The port is higher by dp. An endpoint other than tcp, or without room for the port, is
// an error unless dp is 0.
func RankEndpoint(endpoint string, dp uint32) (string, error) {
	if dp == 0 {
		return endpoint, nil
	}
	at := strings.LastIndexByte(endpoint, ':')
	if !strings.HasPrefix(endpoint, "tcp://") || at < 0 {
		return "", fmt.Errorf("zmq: endpoint %q has no port number, which ranks need", endpoint)
	}
	port, err := strconv.ParseUint(endpoint[at+1:], 10, 16)
	if err != nil || port+uint64(dp) > 65535 {
		return "", fmt.Errorf("zmq: endpoint %q has no port for rank %d", endpoint, dp)
	}
	return endpoint[:at+1] + strconv.FormatUint(port+uint64(dp), 10), nil
}
