package endpoints

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coppice-llm/coppice/gateway"
)

func urls(list []gateway.WorkerConfig) (all []string) {
	for _, w := range list {
		all = append(all, w.URL)
	}
	return all
}

// TestWatcher follows a headless service whose pods change and whose DNS server goes away, and a file that changes.
func TestWatcher(t *testing.T) {
	path := filepath.Join(t.TempDir(), "workers.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"workers":[{"url":"http://10.0.0.9:8080/"}]}`)
	synctest.Test(t, func(t *testing.T) {
		pods := []string{"10.0.0.2", "::ffff:10.0.0.1", "fd00::1", "10.0.0.2"}
		var refuse, away error
		var applied [][]string
		ctx, stop := context.WithCancel(t.Context())
		w := Watcher{
			Given: []gateway.WorkerConfig{{URL: "http://workers.ns.svc:8080", Name: "one", Events: "tcp://workers.ns.svc:5557", Replay: "tcp://other:5558"}}, File: path,
			LookUp: func(_ context.Context, host string) (all []netip.Addr, err error) {
				if host != "workers.ns.svc" {
					t.Errorf("looks up %s", host)
				}
				for _, text := range pods {
					all = append(all, netip.MustParseAddr(text))
				}
				return all, away
			},
			Apply: func(list []gateway.WorkerConfig) error {
				applied = append(applied, urls(list))
				for _, w := range list {
					if host, ok := strings.CutPrefix(w.URL, "http://10.0.0.2:"); ok && (w.Events != "tcp://10.0.0.2:5557" || w.Replay != "tcp://other:5558" || host != "8080") {
						t.Errorf("worker %+v", w)
					}
					if many := len(list) > 2; strings.HasSuffix(w.URL, ":8080") && !strings.Contains(w.URL, ".9:") && (w.Name == "") != many {
						t.Errorf("one of %d workers is called %q", len(list), w.Name)
					}
				}
				return refuse
			},
		}
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		step := func(what string, want ...string) {
			t.Helper()
			before := len(applied)
			time.Sleep(w.Every)
			synctest.Wait()
			switch {
			case want == nil && len(applied) != before:
				t.Errorf("%s: applied %v", what, applied[before:])
			case want != nil && (len(applied) != before+1 || !slices.Equal(applied[before], want)):
				t.Errorf("%s: applied %v, want %v", what, applied[before:], want)
			}
		}
		synctest.Wait()
		const one, two, six, file = "http://10.0.0.1:8080", "http://10.0.0.2:8080", "http://[fd00::1]:8080", "http://10.0.0.9:8080"
		if len(applied) != 1 || !slices.Equal(applied[0], []string{one, two, file, six}) {
			t.Fatalf("applied %v", applied)
		}
		step("nothing changes")
		away = errors.New("no answer")
		step("the DNS server is away")
		away, pods = nil, pods[:1]
		step("two pods leave", two, file)
		pods = nil
		step("all pods leave", file)
		write(`{"workers":[]}`)
		refuse = errors.New("not now")
		step("the last one leaves, which is refused", []string{}...)
		if n := len(applied); n != 4 {
			t.Fatalf("%d lists, want 4", n)
		}
		refuse = nil
		time.Sleep(w.Every)
		synctest.Wait()
		if n := len(applied); n != 5 || len(applied[4]) != 0 {
			t.Fatalf("%d lists, want one more try: %v", n, applied)
		}
		step("nothing changes")
		write(`{"workers":`)
		step("a broken file")
		write(`{"workers":[{"url":"http://10.0.0.7:1"}]}`)
		step("the file is whole again", "http://10.0.0.7:1")
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestFirstLook checks that Run ends with the faults of the first list, so that a wrong flag is no surprise an hour later.
func TestFirstLook(t *testing.T) {
	refused := errors.New("refused")
	for name, w := range map[string]Watcher{
		"no file": {File: filepath.Join(t.TempDir(), "none"), Apply: func([]gateway.WorkerConfig) error { return nil }},
		"refused": {Given: []gateway.WorkerConfig{{URL: "http://10.0.0.1:80"}}, Apply: func([]gateway.WorkerConfig) error { return refused }},
	} {
		if err := w.Run(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		`{"workers":[{"url":"http://a:1","pool_tokens":7}]}`: "",
		`{"workers":[]}`:              "",
		`{}`:                          `no "workers"`,
		`[]`:                          "want {",
		`{"workers":[{"uri":"x"}]}`:   "uri",
		`{"workers":[]}{"workers":1}`: "more after",
		``:                            "EOF",
	} {
		_, err := Parse([]byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
