package nats

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/coppice-llm/coppice/internal/natstest"
)

// guarded starts a server that requires a password.
func guarded(t *testing.T) *natstest.Server {
	t.Helper()
	s, err := natstest.Start(natstest.Config{Addr: "127.0.0.1:0", User: "me", Password: "hush"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// heard collects the calls of Notify.
func heard(cfg *Config) func(t *testing.T) error {
	told := make(chan error, 1000)
	cfg.Notify = func(err error) { told <- err }
	return func(t *testing.T) error {
		t.Helper()
		select {
		case err := <-told:
			return err
		case <-time.After(time.Minute):
			t.Fatal("nothing is told")
			return nil
		}
	}
}

// TestTroublePassword: a wrong password is reported once and retried; the right one ends the
// trouble.
func TestTroublePassword(t *testing.T) {
	ns := guarded(t)
	for name, open := range map[string]func(Config) (func(), error){
		"announcer": func(c Config) (func(), error) {
			a, err := NewAnnouncer(AnnouncerConfig{Config: c, Payload: []byte("x"), Epoch: 1})
			return func() { a.Close() }, err
		},
		"watcher": func(c Config) (func(), error) {
			w, err := NewWatcher(WatcherConfig{Config: c})
			return func() { w.Close() }, err
		},
		"bus": func(c Config) (func(), error) {
			b, err := NewBus(BusConfig{Config: c, Topic: "x"})
			return func() { b.Close() }, err
		},
		"source": func(c Config) (func(), error) {
			s, err := NewSource(c)
			if err == nil {
				s.Start()
			}
			return func() { s.Close() }, err
		},
		"sender": func(c Config) (func(), error) {
			s := NewSender(c)
			return func() { s.Close() }, s.Start(nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			password := make(chan string, 1)
			password <- "wrong"
			asked := 0
			cfg := Config{URL: ns.URL(), Worker: "w1", Retry: time.Millisecond}
			again := make(chan struct{})
			cfg.Options = []nats.Option{nats.UserInfoHandler(func() (string, string) {
				p := <-password
				password <- p
				if asked++; asked == 6 {
					close(again) // more often than the client would retry by itself
				}
				return "me", p
			})}
			next := heard(&cfg)
			stop, err := open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			// A connection that is cut at once may be reported first.
			for !errors.Is(next(t), nats.ErrAuthorization) {
			}
			<-again
			<-password
			password <- "hush"
			for next(t) != nil {
			}
		})
	}
}

// TestTroubleOnce: each problem is reported once until all is well, and their number is limited.
func TestTroubleOnce(t *testing.T) {
	var told []string
	b := trouble{notify: func(err error) { told = append(told, fmt.Sprint(err)) }}
	b.report(nil)
	for range 3 {
		b.report(errors.New("one"))
		b.report(errors.New("two"))
	}
	b.report(nil)
	b.report(nil)
	b.report(errors.New("one"))
	if got := strings.Join(told, " "); got != "one two <nil> one" {
		t.Errorf("told is %s", got)
	}
	for i := range 1000 {
		b.report(fmt.Errorf("port %d", i))
	}
	if len(told) != 3+maxTroubles {
		t.Errorf("%d are told", len(told))
	}
}

// TestTroubleFiles: unreadable files are refused at once.
func TestTroubleFiles(t *testing.T) {
	s := guarded(t)
	for file, cfg := range map[string]Config{"/nowhere/creds": {Credentials: "/nowhere/creds"}, "/nowhere/ca": {CA: "/nowhere/ca"}} {
		cfg.URL, cfg.Worker = s.URL(), "w1"
		if _, err := NewAnnouncer(AnnouncerConfig{Config: cfg, Payload: []byte("x"), Epoch: 1}); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", file, err)
		}
	}
}
