package gateway

import (
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/coppice-llm/coppice/internal/bounds"
)

// BindScheme begins the URL of a port at which a gateway listens for publishers that connect.
const BindScheme = "zmq+bind://"

// ParseBind parses what follows BindScheme: host:port, and parameters after a question mark. It reports all faults at once.
func ParseBind(rest string) (*Bind, error) {
	at, query, _ := strings.Cut(rest, "?")
	var faults bounds.Faults
	b := &Bind{}
	host, port, err := net.SplitHostPort(at)
	n, err2 := strconv.ParseUint(port, 10, 16)
	faults.If(err != nil || err2 != nil || n == 0, "want a host and a port, as %s*:5557", BindScheme)
	if b.Host, b.Port = host, int(n); host == "" {
		b.Host = "*"
	}
	values, err := url.ParseQuery(query)
	faults.If(err != nil, "the text after the ? is not a query")
	for name, given := range values {
		value := given[0]
		switch {
		case len(given) > 1:
			faults.If(true, "%.40s is given twice", name)
		case name == "topic":
			b.Topic = value
		case name == "replay":
			n, err := strconv.ParseUint(value, 10, 16)
			faults.If(err != nil, "replay is %.20q, want the port for replays at the workers' hosts, or 0 for none", value)
			b.ReplayPort = int(n)
		case name == "from":
			faults.If(value != "any" && value != "worker", "from is %.20q, want worker (a topic counts only from the address of its worker) or any", value)
			b.AnyAddress = value == "any"
		default:
			faults.If(true, "unknown parameter %.40q, want one of topic, replay, from", name)
		}
	}
	return b, faults.Err()
}
