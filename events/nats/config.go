package nats

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/coppice-llm/coppice/events"
)

// Config says where a rank's events are. All parties of a fleet use the same
// servers, prefix and stream. The zero value works, but for Worker.
type Config struct {
	URL    string `default:"nats://127.0.0.1:4222"` // nats://127.0.0.1:4222; several are separated by commas
	Worker string // one token of a subject: no dots, blanks or wildcards
	DP     uint32 // data-parallel rank
	// Epoch is the process whose events a Source takes, as its card says: those of others under
	// the same name are passed over. 0: all of the name, the latest last.
	Epoch uint64

	Prefix string `default:"coppice-kv"` // of all subjects. Default: coppice-kv.

	SnapshotBytes int           `default:"1<<30"` // of one snapshot. Default: 1 GiB.
	Retry         time.Duration `default:"100ms"` // first wait after trouble, doubled up to 5 s. Default: 100 ms.

	// Credentials is a file with a user's JWT and seed, CA one with the certificates of who
	// signed the servers', PEM. "": none; a user and a password may stand in URL.
	Credentials, CA string
	// Options are added to the connection's.
	Options []nats.Option

	// Notify is told what is in the way, as servers that can't be reached or refuse the
	// credentials, each thing once; and nil when all is well after that. It must not block.
	// What is tried is tried again in any case.
	Notify func(error)
}

func (c Config) validate() error {
	for _, f := range [...]struct{ name, token string }{{"Worker", c.Worker}, {"Prefix", c.Prefix}} {
		if f.token == "" || strings.ContainsAny(f.token, ".*> \t\r\n/\\") {
			return fmt.Errorf("nats: %s %q must be one token: no dots, blanks, slashes or wildcards", f.name, f.token)
		}
	}
	return nil
}

func (c Config) subject() string { return fmt.Sprintf("%s.%s.%d", c.Prefix, c.Worker, c.DP) }
func (c Config) askAt() string   { return fmt.Sprintf("%s-ask.%s.%d", c.Prefix, c.Worker, c.DP) }

// connect never gives up: servers come and go, and credentials are mended. It calls up for each new connection,
// and down, if it is not nil, when one breaks.
func (c Config) connect(name string, up, down func(), more ...nats.Option) (*nats.Conn, error) {
	t := &trouble{notify: c.Notify}
	connected := func(*nats.Conn) {
		t.is(nil)
		up()
	}
	failed := func(_ *nats.Conn, err error) {
		if err != nil { // it is when the connection is closed by us
			t.is(err)
		}
	}
	options := []nats.Option{
		nats.Name(name), nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true), nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(c.Retry), nats.ReconnectJitter(c.Retry/2, c.Retry/2), nats.PingInterval(pingInterval),
		nats.ConnectHandler(connected), nats.ReconnectHandler(connected), nats.ReconnectErrHandler(failed),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			failed(nc, err)
			if down != nil {
				down()
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			// Other errors are told by the call that they concern.
			if errors.Is(err, nats.ErrPermissionViolation) {
				t.is(err)
			}
		}),
	}
	if c.Credentials != "" {
		options = append(options, nats.UserCredentials(c.Credentials))
	}
	if c.CA != "" {
		options = append(options, nats.RootCAs(c.CA))
	}
	nc, err := nats.Connect(c.URL, slices.Concat(options, c.Options, more)...)
	if bad := (*url.Error)(nil); errors.As(err, &bad) {
		return nil, errors.New("nats: URL can't be read, want servers as nats://host:4222") // err quotes it, with its password
	}
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	return nc, nil
}

// pingInterval is how often a server is asked whether it is there: of two questions without an answer the connection breaks.
const pingInterval = 10 * time.Second

// signal leaves a note in a channel of one place.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// pump hands over what comes on a subscription until ctx or the subscription ends. What comes faster than it is read
// is dropped: what was missed shows otherwise.
func pump(ctx context.Context, sub *nats.Subscription, to chan<- *nats.Msg) {
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if errors.Is(err, nats.ErrSlowConsumer) { // told once for all that were dropped
			continue
		}
		if err != nil {
			return // closed
		}
		select {
		case to <- m:
		case <-ctx.Done():
			return
		}
	}
}

// subscribe is a subscription that keeps no more than so many messages and bytes for a slow reader.
func subscribe(nc *nats.Conn, subject string, messages, bytes int) (*nats.Subscription, error) {
	sub, err := nc.SubscribeSync(subject)
	if err == nil {
		err = sub.SetPendingLimits(messages, bytes)
	}
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	return sub, nil
}

// The header of a message: numbers in decimal.
const (
	headEpoch = "Coppice-Epoch"
	headSeq   = "Coppice-Seq"
	headEnd   = "Coppice-End" // of an answer: how many messages came before
	headErr   = "Coppice-Error"
)

func header(epoch, seq uint64) nats.Header {
	return nats.Header{headEpoch: {strconv.FormatUint(epoch, 10)}, headSeq: {strconv.FormatUint(seq, 10)}}
}

// message reads what header and payload say; false if it is none of ours.
func message(h nats.Header, payload []byte) (events.Message, bool) {
	epoch, err := strconv.ParseUint(h.Get(headEpoch), 10, 64)
	seq, err2 := strconv.ParseUint(h.Get(headSeq), 10, 64)
	return events.Message{Epoch: epoch, Seq: seq, Payload: payload}, err == nil && err2 == nil && epoch != 0
}
