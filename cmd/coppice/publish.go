package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/events/zmq"
)

// fleetFlags make serve a worker of a fleet.
type fleetFlags struct {
	Publish     []string `sep:"none" placeholder:"URL" help:"Publish what the cache holds, for routers: zmq://*:5557 or nats://host:4222, see above. Several are repeated or separated by commas."`
	Name        string   `placeholder:"NAME" help:"The worker's name, unique in its fleet. Default: host and port and a random number, so another one after a restart."`
	Pool        string   `placeholder:"NAME" help:"The pool that it is in, for routers with --pools."`
	Advertise   string   `placeholder:"URL" help:"Where routers reach this server. Default: by --addr, http://host:port."`
	BlockTokens int      `name:"block-tokens" default:"16" help:"Tokens of a block of published events: a multiple of --page-tokens, and the same in all of a fleet."`
	ArrayEvents bool     `name:"array-events" help:"Publish events as arrays, for readers from before vLLM 0.26."`
}

const fleetHelp = `
With --publish the server is a worker of a fleet: routers hear what its cache holds, and
read at /v1/worker who it is. Events are vLLM's. The URLs:

  zmq://*:5557?replay=5558&topic=T   a PUB socket, and one for replays: the next port, or
                                     none with replay=0. Default topic: kv@host:port@model
  nats://a:4222,b:4222?prefix=P      one NATS, by several of its servers; tls:// likewise, with
                                     ca=FILE. nats://user:password@…, or creds=FILE. There the
                                     worker registers itself, too. The server keeps nothing:
                                     what a router missed, the worker sends again. Default
                                     prefix: coppice-kv
`

// target is one place to publish at.
type target struct {
	zmq  *zmqTarget
	nats *natsTarget
}

type zmqTarget struct {
	host         string // "*": all addresses
	port, replay int    // 0: any that is free; replay below 0: none
	topic        string
}

type natsTarget struct {
	servers   string // nats://a:4222,nats://b:4222
	prefix    string
	creds, ca string // files; "": none
}

// splitURLs separates URLs at commas; what has no scheme that is ours is another server of
// the URL before it, or a part of its password.
func splitURLs(texts []string) []string {
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

var ourScheme = regexp.MustCompile(`^(zmq|nats|tls)://`)

// plainHosts are hosts, with ports or without.
var plainHosts = regexp.MustCompile(`^(\*|[\w.-]*|\[[\w.:%]*\])(:\d*)?(,(\*|[\w.-]*|\[[\w.:%]*\])(:\d*)?)*$`)

// redact leaves out who logs in, and how. What is given may be no right URL, as its password
// has a ? in it or it has no host: all up to the last @ is secret then, or all of it if what
// stands for the hosts can't be some. ZMQ knows no passwords, and has an @ in topics.
func redact(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	if scheme += "://"; !ok || strings.ContainsAny(scheme[:len(scheme)-3], ":@/?#") {
		scheme, rest = "", text
	}
	hosts := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		hosts = rest[:i]
	}
	at := strings.LastIndexByte(rest, '@')
	switch plain := plainHosts.MatchString(hosts); {
	case at < 0 && (plain || scheme == "zmq://" || scheme == ""), plain && scheme == "zmq://":
		return text
	case at < 0:
		return scheme + "(secret)"
	}
	return scheme + "(secret)" + rest[at:]
}

// redactURLs is how --publish is printed.
func redactURLs(texts []string) string {
	all := splitURLs(texts)
	for i := range all {
		all[i] = redact(all[i])
	}
	return strings.Join(all, ",")
}

// targets parses --publish.
func (f *fleetFlags) targets() ([]target, error) {
	var all []target
	var errs []error
	for _, text := range splitURLs(f.Publish) {
		t, err := parseTarget(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--publish %s: %w", redact(text), err))
		}
		all = append(all, t)
	}
	return all, errors.Join(errs...)
}

func parseTarget(text string) (t target, err error) {
	scheme, rest, ok := strings.Cut(text, "://")
	authority, query, _ := strings.Cut(rest, "?")
	if !ok || strings.ContainsAny(scheme, ":@/?#") {
		return t, errors.New("want a URL like zmq://*:5557 or nats://host:4222")
	}
	if scheme != "zmq" && strings.Contains(query, "@") { // or a part of a password would be one of the query, and told
		return t, errors.New("an @ behind the ? is written %40, and a ? in a password %3F")
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return t, errors.New("what follows the ? is no query")
	}
	// take reads the parameters of these names, of which there may be no others.
	take := func(names ...string) (taken []string, err error) {
		for _, name := range names {
			if len(values[name]) > 1 {
				err = errors.Join(err, fmt.Errorf("%s is given twice", name))
			}
			taken = append(taken, values.Get(name))
			values.Del(name)
		}
		for name := range values {
			err = errors.Join(err, fmt.Errorf("there is no parameter %.40q, want one of %s", redact(name), strings.Join(names, ", ")))
		}
		return taken, err
	}
	switch scheme {
	case "zmq":
		taken, err := take("replay", "topic")
		if err != nil {
			return t, err
		}
		t.zmq, err = parseZMQ(authority, taken[0], taken[1])
		return t, err
	case "nats", "tls":
		taken, err := take("prefix", "creds", "ca")
		if err != nil {
			return t, err
		}
		t.nats, err = parseNATS(scheme, authority, natsTarget{prefix: taken[0], creds: taken[1], ca: taken[2]})
		return t, err
	}
	return t, fmt.Errorf("the scheme is %.20q, want zmq, nats or tls", scheme)
}

func parseZMQ(authority, replay, topic string) (*zmqTarget, error) {
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
	z := &zmqTarget{host: host, port: int(port), replay: int(port) + 1, topic: topic}
	switch {
	case replay == "" && port == 0:
		z.replay = 0
	case replay == "" && z.replay > 65535:
		return nil, fmt.Errorf("behind port %d there is none for replays: give one as replay=5558, or 0 for none", port)
	case replay != "":
		r, err := strconv.ParseUint(replay, 10, 16)
		if err != nil || r == port && r != 0 {
			return nil, fmt.Errorf("replay is %.20q, want another port than %d, or 0 for none", replay, port)
		}
		if z.replay = int(r); r == 0 {
			z.replay = -1
		}
	}
	return z, nil
}

func parseNATS(scheme, authority string, t natsTarget) (*natsTarget, error) {
	if strings.ContainsAny(t.prefix, ".*> \t\r\n/\\") {
		return nil, fmt.Errorf("prefix is %.40q, want no dots, blanks, slashes, * or >", t.prefix)
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
	t.servers = strings.Join(servers, ",")
	for _, f := range [...]struct{ name, file string }{{"creds", t.creds}, {"ca", t.ca}} {
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

// check reports what is wrong with the flags together.
func (f *fleetFlags) check(pageTokens int) error {
	_, err := f.targets()
	errs := []error{err}
	if f.Name != "" {
		if err := card.CheckName(f.Name); err != nil {
			errs = append(errs, fmt.Errorf("--name: %w", err))
		}
	}
	if f.Pool != "" {
		if err := card.CheckPool(f.Pool); err != nil {
			errs = append(errs, fmt.Errorf("--pool: %w", err))
		}
	}
	if f.Advertise != "" {
		u, err := url.Parse(f.Advertise)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery+u.Fragment != "" {
			errs = append(errs, fmt.Errorf("--advertise is %.80q, want a URL like http://host:8080", redact(f.Advertise)))
		}
	}
	if len(f.Publish) > 0 {
		if b, p := f.BlockTokens, pageTokens; b < 1 || b > maxBlockTokens || p > 0 && b%p != 0 {
			errs = append(errs, fmt.Errorf("--block-tokens is %d, want a multiple of --page-tokens, which is %d, up to %d: give both the same value, or smaller pages; routers and other workers need the same blocks", b, p, maxBlockTokens))
		}
	}
	return errors.Join(errs...)
}

// maxBlockTokens is the largest block that is published: more, and hardly a prompt has one.
const maxBlockTokens = 4096

// identity is who a server that listens there is: its name and where it is reached.
func (f *fleetFlags) identity(at net.Addr, secure bool) (name, reached string, err error) {
	host, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return "", "", err
	}
	hostname, err := os.Hostname()
	if err != nil && f.Name == "" {
		return "", "", fmt.Errorf("this machine does not tell its name, give one by --name: %w", err)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() && hostname != "" {
		host = hostname
	}
	scheme := "http"
	if secure {
		scheme = "https"
	}
	name, reached = f.Name, strings.TrimRight(f.Advertise, "/")
	if name == "" {
		name = nameOf(fmt.Sprintf("%s-%s-%06x", hostname, port, rand.Uint32()>>8)) // two hosts may have one name, and containers one port
	}
	if reached == "" {
		reached = scheme + "://" + net.JoinHostPort(host, port)
	}
	return name, reached, nil
}

// nameOf makes a name of a text: of what it may not have, hyphens, and its end if it is
// too long.
func nameOf(text string) string {
	name := strings.Map(func(r rune) rune {
		if r <= ' ' || r >= 0x7f || strings.ContainsRune(`.*>/\`, r) {
			return '-'
		}
		return r
	}, text)
	return name[max(0, len(name)-card.MaxName):]
}

func (z *zmqTarget) sender(topic string) *zmq.Sender {
	if z.topic != "" {
		topic = z.topic
	}
	cfg := zmq.SenderConfig{Endpoint: "tcp://" + net.JoinHostPort(z.host, strconv.Itoa(z.port)), Bind: true, Topic: topic}
	if z.replay >= 0 {
		cfg.ReplayEndpoint = "tcp://" + net.JoinHostPort(z.host, strconv.Itoa(z.replay))
	}
	return zmq.NewSender(cfg)
}

func (n *natsTarget) config(worker string) nats.Config {
	return nats.Config{URL: n.servers, Worker: worker, Prefix: n.prefix, Credentials: n.creds, CA: n.ca}
}
