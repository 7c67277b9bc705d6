// Package eventurl owns the form of URLs for destinations of cache events: it parses them and hides
// their secrets. It opens only the files that a URL names, to check that they exist. Its functions
// may be called from any goroutine.
//
//	targets, err := eventurl.ParseAll([]string{"zmq://*:5557", "nats://a:4222,b:4222?prefix=p"})
package eventurl

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/events/zmq"
)

// Target is one destination of events: exactly one of its fields is set.
type Target struct {
	ZMQ  *ZMQ
	NATS *nats.Config // without Worker
}

// ZMQ describes a pair of sockets, for events and for replays.
type ZMQ struct {
	Host         string // "*": all addresses
	Port, Replay int    // 0: any free port; a Replay below 0: no socket for replays
	Topic        string // "": the topic given to Sender
}

// Split separates URLs at commas. A part without a scheme for events belongs to the URL before it:
// it is another server, or a piece of its password.
func Split(texts []string) []string {
	var all []string
	for _, text := range texts {
		for i, part := range strings.Split(text, ",") {
			if part = strings.TrimSpace(part); i > 0 && !ourScheme.MatchString(part) {
				all[len(all)-1] += "," + part
			} else {
				all = append(all, part)
			}
		}
	}
	return all
}

// ourScheme matches the beginning of a URL for events. zmq+bind is one of coppice route alone.
var ourScheme = regexp.MustCompile(`^(zmq|zmq\+bind|nats|tls)://`)

// plainHosts matches a list of hosts, with or without ports.
var plainHosts = regexp.MustCompile(`^(\*|[\w.-]*|\[[\w.:%]*\])(:\d*)?(,(\*|[\w.-]*|\[[\w.:%]*\])(:\d*)?)*$`)

// Redact returns a URL without its user and password. The text need not be a valid URL: there
// may be a ? in its password, or no host. Everything up to the last @ counts as secret. Without
// an @, the whole text after the scheme counts as secret unless it begins with a plain list of
// hosts. ZMQ URLs have no passwords, and there may be an @ in their topic.
func Redact(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	if scheme += "://"; !ok || strings.ContainsAny(scheme[:len(scheme)-3], ":@/?#") {
		scheme, rest = "", text
	}
	hosts := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		hosts = rest[:i]
	}
	at := strings.LastIndexByte(rest, '@')
	isZMQ := scheme == "zmq://" || scheme == "zmq+bind://"
	switch plain := plainHosts.MatchString(hosts); {
	case at < 0 && (plain || isZMQ || scheme == ""), plain && isZMQ:
		return text
	case at < 0:
		return scheme + "(secret)"
	}
	return scheme + "(secret)" + rest[at:]
}

// RedactAll splits URLs as Split does, applies Redact to each, and joins them with commas.
func RedactAll(texts []string) string {
	all := Split(texts)
	for i := range all {
		all[i] = Redact(all[i])
	}
	return strings.Join(all, ",")
}

// ParseAll splits URLs as Split does and parses each. The error joins the faults of all URLs; it
// contains the URLs without passwords.
func ParseAll(texts []string) ([]Target, error) {
	var all []Target
	var errs []error
	for _, text := range Split(texts) {
		t, err := Parse(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", Redact(text), err))
		}
		all = append(all, t)
	}
	return all, errors.Join(errs...)
}

// Parse parses one URL, such as zmq://*:5557?replay=5558&topic=T or
// nats://a:4222,b:4222?prefix=P&creds=FILE&ca=FILE. Its errors do not contain the URL.
func Parse(text string) (t Target, err error) {
	scheme, rest, ok := strings.Cut(text, "://")
	authority, query, _ := strings.Cut(rest, "?")
	if !ok || strings.ContainsAny(scheme, ":@/?#") {
		return t, errors.New("want a URL like zmq://*:5557 or nats://host:4222")
	}
	if scheme != "zmq" && strings.Contains(query, "@") { // otherwise a part of a password could appear in an error as a parameter
		return t, errors.New("write an @ after the ? as %40, and a ? in a password as %3F")
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return t, errors.New("the text after the ? is not a query")
	}
	names, ok := parameters[scheme]
	if !ok {
		return t, fmt.Errorf("the scheme is %.20q, want zmq, nats or tls", scheme)
	}
	for name, given := range values {
		if !slices.Contains(names, name) {
			err = errors.Join(err, fmt.Errorf("unknown parameter %.40q, want one of %s", Redact(name), strings.Join(names, ", ")))
		} else if len(given) > 1 {
			err = errors.Join(err, fmt.Errorf("%s is given twice", name))
		}
	}
	switch {
	case err != nil:
	case scheme == "zmq":
		t.ZMQ, err = parseZMQ(authority, values.Get("replay"), values.Get("topic"))
	default:
		t.NATS, err = parseNATS(scheme, authority, nats.Config{Prefix: values.Get("prefix"), Credentials: values.Get("creds"), CA: values.Get("ca")})
	}
	return t, err
}

// parameters lists the parameters of each scheme.
var parameters = map[string][]string{"zmq": {"replay", "topic"}, "nats": {"prefix", "creds", "ca"}, "tls": {"prefix", "creds", "ca"}}

func parseZMQ(authority, replay, topic string) (*ZMQ, error) {
	host, text, err := net.SplitHostPort(authority)
	port, err2 := strconv.ParseUint(text, 10, 16)
	if errors.Is(err2, strconv.ErrRange) {
		return nil, fmt.Errorf("the port is %.20s, want 0 to %d", text, math.MaxUint16)
	}
	if err != nil || err2 != nil {
		return nil, errors.New("want a host and a port, as zmq://*:5557")
	}
	if host == "" {
		host = "*"
	}
	z := &ZMQ{Host: host, Port: int(port), Replay: int(port) + 1, Topic: topic}
	switch {
	case replay == "" && port == 0:
		z.Replay = 0
	case replay == "" && z.Replay > 65535:
		return nil, fmt.Errorf("port %d has no next port for replays: give one as replay=5558, or 0 for none", port)
	case replay != "":
		r, err := strconv.ParseUint(replay, 10, 16)
		if err != nil || r == port && r != 0 {
			return nil, fmt.Errorf("replay is %.20q, want another port than %d, or 0 for none", replay, port)
		}
		if z.Replay = int(r); r == 0 {
			z.Replay = -1
		}
	}
	return z, nil
}

func parseNATS(scheme, authority string, t nats.Config) (*nats.Config, error) {
	if strings.ContainsAny(t.Prefix, ".*> \t\r\n/\\") {
		return nil, fmt.Errorf("prefix is %.40q, want no dots, blanks, slashes, * or >", t.Prefix)
	}
	var servers []string
	for _, server := range strings.Split(strings.TrimSuffix(authority, "/"), ",") {
		u, err := url.Parse(scheme + "://" + server)
		if err != nil || u.Hostname() == "" || u.Path != "" {
			return nil, errors.New("want servers, as nats://host:4222 or nats://a:4222,b:4222")
		}
		if port := u.Port(); port != "" {
			if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
				return nil, fmt.Errorf("the port is %.20s, want 1 to %d", port, math.MaxUint16)
			}
		}
		servers = append(servers, u.String())
	}
	t.URL = strings.Join(servers, ",")
	for _, f := range [...]struct{ name, file string }{{"creds", t.Credentials}, {"ca", t.CA}} {
		if f.file == "" {
			continue
		}
		file, err := os.Open(f.file)
		if err != nil {
			return nil, fmt.Errorf("%s=FILE: %w", f.name, err)
		}
		file.Close()
	}
	return &t, nil
}

// Sender returns a sender with these sockets. topic is used if z has none.
func (z *ZMQ) Sender(topic string) *zmq.Sender {
	if z.Topic != "" {
		topic = z.Topic
	}
	cfg := zmq.SenderConfig{Endpoint: "tcp://" + net.JoinHostPort(z.Host, strconv.Itoa(z.Port)), Bind: true, Topic: topic}
	if z.Replay >= 0 {
		cfg.ReplayEndpoint = "tcp://" + net.JoinHostPort(z.Host, strconv.Itoa(z.Replay))
	}
	return zmq.NewSender(cfg)
}
