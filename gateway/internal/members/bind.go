package members

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/zmq"
)

// Bind is a port at which the gateway listens for the events of workers whose publishers connect, such as pods behind a
// service. Each worker is known by its topic, see [zmq.Publisher]: the configured or announced one, or kv@POD@MODEL with
// the name of the worker, the host and port of its URL, or the host alone.
type Bind struct {
	Host       string // "*": all addresses
	Port       int    // for rank 0; the publisher of each further rank connects to the next port
	ReplayPort int    // of rank 0 at the worker's host; 0: none, unless the worker tells one
	Topic      string // prefix of the wanted topics; "": all
	AnyAddress bool   // accept the topic of a worker from any address, not only from the worker's own
}

// hubs holds the sockets at which the gateway listens, by rank.
type hubs struct {
	mu   sync.Mutex
	all  map[uint32]*zmq.Hub
	seen map[string]bool // refusals that are logged already
}

// maxSeen bounds the refusals that are logged.
const maxSeen = 256

// hub returns the socket for rank dp. It opens it on first use.
func (f *Fleet) hub(dp uint32) (*zmq.Hub, error) {
	f.hubs.mu.Lock()
	defer f.hubs.mu.Unlock()
	if h := f.hubs.all[dp]; h != nil {
		return h, nil
	}
	b := f.cfg.Bind
	at, err := zmq.RankEndpoint("tcp://"+net.JoinHostPort(b.Host, strconv.Itoa(b.Port)), dp)
	if err != nil {
		return nil, err
	}
	h, err := zmq.Listen(zmq.HubConfig{Endpoint: at, Topic: b.Topic, AnyAddress: b.AnyAddress, Refused: f.refused})
	if err != nil {
		return nil, err
	}
	f.hubs.all[dp] = h
	return h, nil
}

// refused logs that a publisher was refused, once for each address, topic and reason.
func (f *Fleet) refused(r zmq.Refusal) {
	key := fmt.Sprint(r.From, r.Why, r.Topic)
	f.hubs.mu.Lock()
	again := f.hubs.seen[key] || len(f.hubs.seen) >= maxSeen
	if !again {
		f.hubs.seen[key] = true
	}
	f.hubs.mu.Unlock()
	if !again {
		f.log.Warn("a publisher of events was refused", zap.Stringer("from", r.From), zap.String("topic", r.Topic), zap.Error(r.Why))
	}
}

// closeHubs closes the sockets.
func (f *Fleet) closeHubs() (err error) {
	f.hubs.mu.Lock()
	all := f.hubs.all
	f.hubs.all = nil
	f.hubs.mu.Unlock()
	for _, h := range all {
		if e := h.Close(); err == nil {
			err = e
		}
	}
	return err
}

// BoundCounts returns the counts of the sockets at which the gateway listens for events. The second result is false if
// there are none.
func (f *Fleet) BoundCounts() (sum zmq.HubCounts, ok bool) {
	f.hubs.mu.Lock()
	defer f.hubs.mu.Unlock()
	for _, h := range f.hubs.all {
		sum.Add(h.Counts())
	}
	return sum, f.cfg.Bind != nil
}

// BindAddr returns the address at which the gateway listens for the events of rank 0, nil if it does not.
func (f *Fleet) BindAddr() net.Addr {
	f.hubs.mu.Lock()
	defer f.hubs.mu.Unlock()
	if h := f.hubs.all[0]; h != nil {
		return h.Addr()
	}
	return nil
}

// connectsHere reports whether a publisher that announces this endpoint connects to the gateway instead of listening: the
// endpoint then names the gateway, or a service before it, with the gateway's port.
func (f *Fleet) connectsHere(endpoint string) bool {
	return f.cfg.Bind != nil && f.cfg.Bind.Port != 0 && strings.HasSuffix(endpoint, ":"+strconv.Itoa(f.cfg.Bind.Port))
}

// bound returns a function that opens the event stream of a rank of m whose publisher connects.
func (f *Fleet) bound(m *Member) func(dp uint32) (events.Source, error) {
	told := m.sources()
	return func(dp uint32) (events.Source, error) {
		h, err := f.hub(dp)
		if err != nil {
			return nil, err
		}
		who := zmq.Publisher{Topic: m.cfg.Topic, Host: m.url.Hostname(), Pods: []string{m.Name(), m.url.Host, m.url.Hostname()}}
		if int(dp) < len(told) {
			who.ReplayEndpoint = told[dp].replay
			if who.Topic == "" {
				who.Topic = told[dp].topic
			}
		}
		if port := f.cfg.Bind.ReplayPort; port != 0 && who.ReplayEndpoint == "" {
			if who.ReplayEndpoint, err = zmq.RankEndpoint("tcp://"+net.JoinHostPort(who.Host, strconv.Itoa(port)), dp); err != nil {
				return nil, err
			}
		}
		return h.Source(who), nil
	}
}
