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
	"github.com/nats-io/nats.go/jetstream"

	"github.com/coppice-llm/coppice/events"
)

// Config says where a rank's events are. All parties of a fleet use the same
// servers, prefix and stream. The zero value works, but for Worker.
type Config struct {
	URL    string // nats://127.0.0.1:4222; several are separated by commas
	Worker string // one token of a subject: no dots, blanks or wildcards
	DP     uint32 // data-parallel rank
	// Epoch is the process whose events a Source takes, as its card says: those of others under
	// the same name are passed over. 0: all of the name, the latest last.
	Epoch uint64

	Prefix string // coppice-kv
	Stream string // COPPICE_KV, and behind it _ and Prefix if that is another than its default

	// What the stream keeps, for readers that are cut off: 1000 batches per rank,
	// 1 GiB in all, in memory unless File. Publishers see to that; a reader takes what is there.
	KeepBatches int64
	KeepBytes   int64
	File        bool

	SnapshotBytes int           // 1 GiB, of one snapshot
	Frames        int           // 16 that wait for the subscriber
	Retry         time.Duration // 100 ms; first wait after trouble, doubled up to 5 s

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

func (c Config) withDefaults() Config {
	setDefault(&c.URL, nats.DefaultURL)
	const prefix = "coppice-kv"
	setDefault(&c.Prefix, prefix)
	if c.Stream == "" {
		if c.Stream = "COPPICE_KV"; c.Prefix != prefix {
			c.Stream += "_" + c.Prefix // a stream has one prefix: two fleets would take it from each other
		}
	}
	setDefault(&c.KeepBatches, 1000)
	setDefault(&c.KeepBytes, 1<<30)
	setDefault(&c.SnapshotBytes, 1<<30)
	setDefault(&c.Frames, 16)
	setDefault(&c.Retry, 100*time.Millisecond)
	return c
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (c Config) validate() error {
	// The stream last: its default has the prefix in it.
	for _, f := range [...]struct{ name, token string }{{"Worker", c.Worker}, {"Prefix", c.Prefix}, {"Stream", c.Stream}} {
		if f.token == "" || strings.ContainsAny(f.token, ".*> \t\r\n/\\") {
			return fmt.Errorf("nats: %s %q must be one token: no dots, blanks, slashes or wildcards", f.name, f.token)
		}
	}
	return nil
}

func (c Config) subject() string { return fmt.Sprintf("%s.%s.%d", c.Prefix, c.Worker, c.DP) }
func (c Config) askAt() string   { return fmt.Sprintf("%s-ask.%s.%d", c.Prefix, c.Worker, c.DP) }

func (c Config) stream() jetstream.StreamConfig {
	storage := jetstream.MemoryStorage
	if c.File {
		storage = jetstream.FileStorage
	}
	return jetstream.StreamConfig{Name: c.Stream, Subjects: []string{c.Prefix + ".*.*"}, Storage: storage,
		MaxMsgsPerSubject: c.KeepBatches, MaxBytes: c.KeepBytes, Discard: jetstream.DiscardOld}
}

// find looks for the stream; [jetstream.ErrStreamNotFound] tells that there is none. One that
// carries other subjects is somebody else's: to take it would silence them.
func (c Config) find(ctx context.Context, js jetstream.JetStream) (jetstream.Stream, error) {
	there, err := js.Stream(ctx, c.Stream)
	if err != nil {
		return nil, err
	}
	if has, want := there.CachedInfo().Config.Subjects, c.stream().Subjects; !slices.Equal(has, want) {
		return nil, fmt.Errorf("it carries %q, not %q: give another stream", has, want)
	}
	return there, nil
}

// connect never gives up: servers come and go, and credentials are mended.
func (c Config) connect(name string, t *trouble, more ...nats.Option) (*nats.Conn, error) {
	options := append([]nats.Option{nats.Name(name), nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true), nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(c.Retry), nats.ReconnectJitter(c.Retry/2, c.Retry/2)}, t.options()...)
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
