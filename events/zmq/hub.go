package zmq

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/internal/bounds"
)

// HubConfig configures a [Hub]. Endpoint is required.
type HubConfig struct {
	Endpoint string // where the SUB socket listens: tcp://*:5557
	Topic    string // prefix of the wanted topics; "": all
	// AnyAddress lets a connection speak for a publisher from any address. Without it, a connection must come from an
	// address of the publisher's host.
	AnyAddress bool
	// Refused, if not nil, is called when a connection is refused. It must not block.
	Refused func(r Refusal)

	MaxConns        int           `default:"1024"`   // open connections; further ones wait
	MaxConnsPerHost int           `default:"64"`     // of one address; further ones are refused
	RefuseFor       time.Duration `default:"1s"`     // how long a refused connection stays open, so that its peer does not connect again at once
	MessageBytes    int           `default:"16<<20"` // as in SourceConfig
	Frames          int           `default:"16"`     // as in SourceConfig

	lookup lookup // in tests; nil: that of the system
}

// lookup returns the addresses of a host.
type lookup func(ctx context.Context, host string) ([]netip.Addr, error)

// Refusal describes a connection that was refused.
type Refusal struct {
	From  netip.Addr
	Topic string // at most 1 KiB; "" if none was read
	Why   error
}

// The reasons for refusing a connection.
var (
	errHandshake  = errors.New("zmq: the peer is no ZMTP publisher")
	errWrongHost  = errors.New("zmq: the topic is that of a worker at another address")
	errTaken      = errors.New("zmq: another connection speaks for this worker")
	errOtherTopic = errors.New("zmq: a second topic over one connection")
	errCrowded    = errors.New("zmq: too many connections from one address")
)

// HubCounts are the counts of a [Hub] since its start.
type HubCounts struct {
	Connections uint64 // accepted
	Handshake   uint64 // refused by errHandshake, and so on
	WrongHost   uint64
	Taken       uint64
	OtherTopic  uint64
	Crowded     uint64
	NoWorker    uint64 // messages whose topic is that of no worker, or of several; dropped
	Malformed   uint64 // messages that are none
}

// Add adds the counts of another hub.
func (c *HubCounts) Add(o HubCounts) {
	c.Connections += o.Connections
	c.Handshake += o.Handshake
	c.WrongHost += o.WrongHost
	c.Taken += o.Taken
	c.OtherTopic += o.OtherTopic
	c.Crowded += o.Crowded
	c.NoWorker += o.NoWorker
	c.Malformed += o.Malformed
}

// Hub is a SUB socket that listens, for publishers that connect: several of them over one port, told apart by topic. The
// first message of a connection decides for which [Publisher] it speaks, and all its messages must have that topic. A
// connection speaks for one publisher, and one connection at a time for each. So a peer can't put words into the mouth of
// another worker, unless it sits at that worker's address and connects before it.
type Hub struct {
	cfg    HubConfig
	l      net.Listener
	ctx    context.Context
	cancel context.CancelFunc
	wait   sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]netip.Addr // open connections
	hosts  map[netip.Addr]int      // number of open connections by address
	known  map[*BoundSource]bool
	counts HubCounts
}

// Listen opens the socket of a Hub.
func Listen(cfg HubConfig) (*Hub, error) {
	cfg = bounds.Fill(cfg)
	if cfg.lookup == nil {
		cfg.lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	network, address, err := parse(cfg.Endpoint)
	if err == nil && network != "tcp" {
		err = fmt.Errorf("zmq: endpoint %q: want tcp://host:port", cfg.Endpoint)
	}
	if err != nil {
		return nil, err
	}
	h := &Hub{cfg: cfg, conns: make(map[net.Conn]netip.Addr), hosts: make(map[netip.Addr]int), known: make(map[*BoundSource]bool)}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	// A publisher that vanished without a word holds its place until the keep-alive finds out, after 11 s.
	how := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}}
	if h.l, err = how.Listen(h.ctx, network, address); err != nil {
		h.cancel()
		return nil, fmt.Errorf("zmq: the socket for events (SUB): %w", err)
	}
	h.wait.Go(h.accept)
	return h, nil
}

// Addr returns the address at which the hub listens.
func (h *Hub) Addr() net.Addr { return h.l.Addr() }

// Counts returns the current counts.
func (h *Hub) Counts() HubCounts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts
}

// Close ends all connections, and returns when all goroutines of the hub have ended. Sources of the hub stay open, and
// get no more frames.
func (h *Hub) Close() error {
	h.cancel()
	err := h.l.Close()
	h.mu.Lock()
	for nc := range h.conns {
		_ = nc.Close()
	}
	h.mu.Unlock()
	h.wait.Wait()
	return err
}

// accept serves each connection on a goroutine of its own.
func (h *Hub) accept() {
	places := make(chan struct{}, h.cfg.MaxConns)
	for {
		select {
		case places <- struct{}{}:
		case <-h.ctx.Done():
			return
		}
		nc, err := h.l.Accept()
		if err != nil {
			<-places
			if !h.pause(10 * time.Millisecond) {
				return
			}
			continue // perhaps out of descriptors
		}
		h.wait.Go(func() {
			defer func() { <-places }()
			h.with(nc)
		})
	}
}

// pause waits for d. It returns false if the hub is closed meanwhile.
func (h *Hub) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-h.ctx.Done():
		return false
	}
}

// with serves a connection and closes it. If the connection is refused, that is counted and reported, and the connection
// stays open for RefuseFor, unread.
func (h *Hub) with(nc net.Conn) {
	from := addressOf(nc)
	h.mu.Lock()
	h.counts.Connections++
	h.conns[nc] = from
	h.hosts[from]++
	crowded := h.hosts[from] > h.cfg.MaxConnsPerHost
	h.mu.Unlock()
	defer func() {
		_ = nc.Close()
		h.mu.Lock()
		delete(h.conns, nc)
		if h.hosts[from]--; h.hosts[from] == 0 {
			delete(h.hosts, from)
		}
		h.mu.Unlock()
	}()
	if h.ctx.Err() != nil { // otherwise Close may have missed it
		return
	}
	topic, err := "", errCrowded
	if !crowded {
		topic, err = h.serve(nc, from)
	}
	if err == nil || h.ctx.Err() != nil {
		return
	}
	h.count(err)
	if h.cfg.Refused != nil {
		h.cfg.Refused(Refusal{From: from, Topic: topic[:min(len(topic), maxPrefix)], Why: err})
	}
	if crowded {
		return // to hold it open would be the crowd's aim
	}
	h.pause(h.cfg.RefuseFor)
}

// count counts a refusal.
func (h *Hub) count(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range []struct {
		err   error
		count *uint64
	}{{errHandshake, &h.counts.Handshake}, {errWrongHost, &h.counts.WrongHost}, {errTaken, &h.counts.Taken}, {errOtherTopic, &h.counts.OtherTopic}, {errCrowded, &h.counts.Crowded}} {
		if why == c.err {
			*c.count++
		}
	}
}

// addressOf returns the address of the peer.
func addressOf(nc net.Conn) netip.Addr {
	if at, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		return at.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// serve forwards the messages of a connection to the source of its publisher until the connection ends, which is no error,
// or must be refused.
func (h *Hub) serve(nc net.Conn, from netip.Addr) (topic string, err error) {
	c, err := handshake(nc, "SUB", h.cfg.MessageBytes, handshakeTimeout, "PUB", "XPUB")
	if err != nil {
		return "", errHandshake
	}
	c.timeout = writeTimeout
	if c.subscribe(1, h.cfg.Topic) != nil {
		return "", nil
	}
	var src *BoundSource // nil while the topic is that of no publisher
	defer func() {
		if src != nil {
			src.put(events.Frame{Kind: events.FrameDisconnected})
			h.release(src, nc)
		}
	}()
	for named := false; ; {
		frames, command, err := c.read()
		if err != nil {
			if errors.Is(err, errProtocol) {
				h.malformed(src)
			}
			return topic, nil
		}
		if command != "" {
			continue
		}
		if len(frames) != 3 || len(frames[1]) != 8 {
			h.malformed(src)
			continue
		}
		if !named {
			topic, named = string(frames[0]), true
		} else if string(frames[0]) != topic {
			return topic, errOtherTopic
		}
		if src != nil && src.ctx.Err() != nil { // the worker has left; it may have come back under another source
			h.release(src, nc)
			src = nil
		}
		if src == nil {
			if src, err = h.claim(topic, from, nc); err != nil {
				return topic, err
			}
			if src == nil {
				continue
			}
			src.put(events.Frame{Kind: events.FrameConnected})
		}
		src.put(events.Frame{Topic: topic, Message: events.Message{Seq: binary.BigEndian.Uint64(frames[1]), Payload: frames[2]}})
	}
}

// malformed counts a message that is none, of the connection that speaks for src, if it is not nil.
func (h *Hub) malformed(src *BoundSource) {
	h.mu.Lock()
	h.counts.Malformed++
	h.mu.Unlock()
	if src != nil {
		src.put(events.Frame{Kind: events.FrameMalformed})
	}
}

// claim lets a connection from this address speak for the publisher that the topic names. It returns no source if there
// is none, or several fit equally well: the message is dropped then, and the next one is tried again. An
// error refuses the connection.
func (h *Hub) claim(topic string, from netip.Addr, nc net.Conn) (*BoundSource, error) {
	h.mu.Lock()
	src := h.named(topic)
	if src == nil {
		h.counts.NoWorker++
	}
	h.mu.Unlock()
	if src == nil {
		return nil, nil
	}
	if !h.cfg.AnyAddress && !h.isAt(src.who.Host, from) {
		return nil, errWrongHost
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !h.known[src]: // it left meanwhile
		return nil, nil
	case src.speaker != nil:
		return nil, errTaken
	}
	src.speaker = nc
	return src, nil
}

// named returns the source that the topic names best, nil if there is none or several do equally. The caller holds mu.
func (h *Hub) named(topic string) (best *BoundSource) {
	most, several := 0, false
	for src := range h.known {
		fit := src.who.fits(topic)
		if fit > most {
			best, most, several = src, fit, false
		} else if fit == most && fit > 0 {
			several = true
		}
	}
	if several {
		return nil
	}
	return best
}

// lookupTimeout bounds the look-up of a publisher's host.
const lookupTimeout = 5 * time.Second

// isAt reports whether from is an address of host, a name or an address.
func (h *Hub) isAt(host string, from netip.Addr) bool {
	if at, err := netip.ParseAddr(host); err == nil {
		return at.Unmap().WithZone("") == from
	}
	ctx, cancel := context.WithTimeout(h.ctx, lookupTimeout)
	defer cancel()
	all, err := h.cfg.lookup(ctx, host)
	for _, at := range all {
		if err == nil && at.Unmap().WithZone("") == from {
			return true
		}
	}
	return false
}

// release ends that a connection speaks for src.
func (h *Hub) release(src *BoundSource, nc net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if src.speaker == nc {
		src.speaker = nil
	}
}
