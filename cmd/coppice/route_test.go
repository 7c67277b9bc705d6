package main

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/events/eventurl"
	"github.com/coppice-llm/coppice/gateway"
	"github.com/coppice-llm/coppice/server"
)

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRoutePrintConfig checks that the given settings are printed with their sources, without
// secrets.
func TestRoutePrintConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "route.json")
	writeFile(t, file, "\ufeff"+`{"addr": ":1", "max_queued": 7, "retries": 0, "max-bodies": "1GiB", "replicas": "nats://me:hidden@a:4222", "drain": "5s"}`)
	t.Setenv("COPPICE_ADDR", ":2")
	t.Setenv("COPPICE_QUEUE_TIMEOUT", "0")
	t.Setenv("COPPICE_MAX_QUEUED", "8")
	t.Setenv("COPPICE_WORKER_KEY", "hidden")
	t.Setenv("COPPICE_EVENTS", "nats://me:hidden@b:4222")
	stdout, stderr, ok := command(t, "route", "--config", file, "--max-queued", "9", "--weight", "ttft=2;itl=0.5", "--tier-weights", "disk=0.5", "--worker", "http://me:hidden@w:1,http://v:1", "--print-config")
	if !ok {
		t.Fatal(stderr)
	}
	from := regexp.QuoteMeta(file)
	for _, want := range []string{
		`addr +:2 +COPPICE_ADDR`, `max-queued +9 +flag`, `queue-timeout +0s +COPPICE_QUEUE_TIMEOUT`, `retries +0 +` + from, `max-bodies +1GiB +` + from,
		`drain +5s +` + from, `max-conns +8192 +default`, `worker-key +\(secret\) +COPPICE_WORKER_KEY`, `replicas +nats://\(secret\)@a:4222 +` + from,
		`events +nats://\(secret\)@b:4222 +COPPICE_EVENTS`, `worker +http://\(secret\)@w:1,http://v:1 +flag`, `weight +itl=0.5;ttft=2 +flag`, `tier-weights +device=1,host=0.8,disk=0.5,shared=0.4,object=0.2 +flag`,
		`queue-order +fcfs +default`, `busy-factor +0 +default`, `api-key +- +default`,
	} {
		if !regexp.MustCompile(`(?m)^` + want).MatchString(stdout) {
			t.Errorf("no line %q in\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout, "hidden") {
		t.Errorf("secrets are printed: %s", stdout)
	}
}

// TestRouteRefusesTierWeights checks that errors name the tier.
func TestRouteRefusesTierWeights(t *testing.T) {
	for value, want := range map[string]string{"tape=1": `"tape=1" is no tier and its weight`, "disk=2": "disk is 2, want 0 to 1"} {
		_, stderr, ok := command(t, "route", "--tier-weights", value, "--worker", "http://a:1")
		if ok || !strings.Contains(stderr, "tier-weights") || !strings.Contains(stderr, want) {
			t.Errorf("%s: %s", value, stderr)
		}
	}
}

// TestRouteRefuses checks that every message names the flag or file, and the valid values.
func TestRouteRefuses(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		writeFile(t, path, text)
		return path
	}
	empty, admins, short := file("empty", ""), file("admins", "root: very-secret admin"), file("short", "root: hush")
	one := file("one", `{"workers": [{"url": "http://a:1"}]}`)
	for _, tc := range []struct {
		args string
		want []string
	}{
		{"--block-tokens 0", []string{"--block-tokens is 0, want 1 to 4096"}},
		{"--block-tokens 4097", []string{"--block-tokens is 4097"}},
		{"--max-workers 0", []string{"--max-workers is 0, want 1 to 65536"}},
		{"--max-queued 0 --max-open 0 --max-conns=-1", []string{"--max-queued is 0", "--max-open is 0", "--max-conns is -1, want 1 to"}},
		{"--guess-ttl 0 --probe-every 0 --write-timeout 0", []string{"--guess-ttl is 0s, want 1ms to 24h", "--probe-every is 0s", "--write-timeout is 0s"}},
		{"--queue-timeout=-1ms", []string{"--queue-timeout is -1ms, want 0s"}},
		{"--queue-timeout 25h --stall-after 25h", []string{"--queue-timeout is 25h", "--stall-after is 25h"}},
		{"--drain=-1s --session-ttl=-1s", []string{"--drain is -1s", "--session-ttl is -1s"}},
		{"--busy-factor=-1 --temperature NaN", []string{"--busy-factor is -1, want 0 to", "--temperature is NaN"}},
		{"--busy-factor +Inf", []string{"--busy-factor is +Inf"}},
		{"--queue-order lifo", []string{"--queue-order", "lifo", "lcfs"}},
		{"--policy best", []string{"--policy", "best", "least-loaded"}},
		{"--max-body 0", []string{"--max-body is 0B, want 1B"}},
		{"--max-body 2GiB", []string{"--max-bodies is 256MiB, want --max-body (2GiB)"}},
		{"--worker-key héé", []string{"--worker-key has characters"}},
		{"--weight light=1", []string{"--weight", `"light"`, "ttft"}},
		{"--weight ttft=-1", []string{"--weight", "TTFT is -1"}},
		{"--events none --events zmq://*:1", []string{"--events none excludes"}},
		{"--events nats://a:1,zmq://*:5,nats://b:1", []string{"--events nats://b:1", "already one of this kind"}},
		{"--events zmq://a:5557", []string{"--events zmq://a:5557", "--workers-file"}},
		{"--events zmq://*:0", []string{"--events zmq://*:0", "port"}},
		{"--events sometimes", []string{"--events sometimes", "auto, or none"}},
		{"--replicas auto", []string{"--replicas auto", "--events"}},
		{"--weight score=2", []string{"--weight", "policy latency has no weight score; its weights are ttft, itl, backlog"}},
		{"--replicas others", []string{"--replicas others", "auto, or", "nats://host:4222"}},
		{"--replicas zmq://*:1", []string{"--replicas zmq://*:1", "nats://host:4222"}},
		{"--replicas nats://a:1?topic=T", []string{"--replicas", "topic"}},
		{"--replicas nats://", []string{"--replicas", "want servers"}},
		{"--api-key 1234567", []string{"--api-key", "7 characters"}},
		{"--api-key-file " + short, []string{"--api-key-file", "4 characters"}},
		{"--events nats://127.0.0.1:1 --api-key-file " + admins, []string{"--worker-key", "not an admin"}},
		{"--tls-cert " + one, []string{"--tls-key"}},
		{"--model " + dir, []string{"--model", "tokenizer.json"}},
		{"--worker w", []string{`--worker "w"`, "http://host:8080"}},
		{"--workers-file " + dir + "/missing", []string{"--workers-file", "missing"}},
		{"--workers-file " + empty, []string{"--workers-file " + empty, "is empty", `{"workers": [`}},
		{"--worker http://a:1/ --workers-file " + one, []string{one, "worker 1", "given twice", `--worker "http://a:1"`}},
	} {
		// Arguments that are accepted fail at the address instead.
		args := append([]string{"route", "--addr", "nowhere:at:all"}, strings.Fields(tc.args)...)
		if !strings.Contains(tc.args, "--worker") {
			args = append(args, "--worker", "http://127.0.0.1:1")
		}
		_, stderr, ok := command(t, args...)
		for _, want := range tc.want {
			if ok || !strings.Contains(stderr, want) {
				t.Errorf("%s: ok %v, printed %s, want %q", tc.args, ok, stderr[max(0, len(stderr)-300):], want)
			}
		}
		if strings.Contains(stderr, "goroutine ") || strings.Contains(stderr, "very-secret") {
			t.Errorf("%s: %s", tc.args, stderr)
		}
	}
	refused(t, []string{"no workers", "--workers-file"}, "route", "--addr", "nowhere:at:all")
	refused(t, []string{"--addr"}, "route", "--addr", "nowhere:at:all", "--worker", "http://127.0.0.1:1")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	refused(t, []string{"--addr", l.Addr().String(), "in use"}, "route", "--addr", l.Addr().String(), "--worker", "http://127.0.0.1:1")
}

// TestRouteBinds: --events zmq+bind:// says where the router listens.
func TestRouteBinds(t *testing.T) {
	for text, want := range map[string]gateway.Bind{
		"*:5557":                                   {Host: "*", Port: 5557},
		":5557?topic=kv@&replay=5558":              {Host: "*", Port: 5557, Topic: "kv@", ReplayPort: 5558},
		"10.0.0.1:5557?from=any":                   {Host: "10.0.0.1", Port: 5557, AnyAddress: true},
		"[::]:5557?from=worker&replay=0&topic=a,b": {Host: "::", Port: 5557, Topic: "a,b"},
	} {
		if got, err := gateway.ParseBind(text); err != nil || *got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"zmq+bind://*": "want a host and a port", "zmq+bind://*:0": "want a host and a port", "zmq+bind://*:1?from=here": `from is "here"`, "zmq+bind://*:1?x=y": `unknown parameter "x"`,
		"zmq+bind://*:1?replay=many": `replay is "many"`, "auto,zmq+bind://*:1,zmq+bind://*:2": "already one of this kind", "zmq+bind://*:1?topic=a&topic=b": "topic is given twice",
	} {
		if err := (&routeCmd{Events: []string{text}}).events(&gateway.Config{}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--events zmq+bind://") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestRouteWorkers checks the workers given by flags, file and --events together.
func TestRouteWorkers(t *testing.T) {
	ports := &eventurl.ZMQ{Host: "*", Port: 5557, Replay: 6557, Topic: "T"}
	for _, tc := range []struct {
		flags []string
		file  string // text between the brackets
		ports *eventurl.ZMQ
		want  []gateway.WorkerConfig
	}{
		{[]string{" http://a:1/", "https://b"}, ``, nil, []gateway.WorkerConfig{{URL: "http://a:1"}, {URL: "https://b"}}},
		{nil, `{"url": "http://a:1//", "name": "a", "pool": "fast", "events": "tcp://b:5557", "replay": "tcp://b:5559", "topic": "t", "ranks": 2, "pool_tokens": 5, "max_running": 6}`, ports,
			[]gateway.WorkerConfig{{URL: "http://a:1", Name: "a", Pool: "fast", Events: "tcp://b:5557", Replay: "tcp://b:5559", Topic: "t", Ranks: 2, PoolTokens: 5, MaxRunning: 6}}},
		{[]string{"http://[::1]:1"}, `{"url": "http://a:1", "events": "none"}, {"url": "http://b", "topic": "t", "replay": "tcp://c:1"}`, ports, []gateway.WorkerConfig{
			{URL: "http://[::1]:1", Events: "tcp://[::1]:5557", Replay: "tcp://[::1]:6557", Topic: "T"},
			{URL: "http://a:1", Events: "none"},
			{URL: "http://b", Events: "tcp://b:5557", Replay: "tcp://c:1", Topic: "t"}}},
		{[]string{"http://a"}, ``, &eventurl.ZMQ{Port: 5557, Replay: -1}, []gateway.WorkerConfig{{URL: "http://a", Events: "tcp://a:5557"}}},
		{nil, `{"url": "http://a", "events": "tcp://a:65534", "ranks": 2}`, nil, []gateway.WorkerConfig{{URL: "http://a", Events: "tcp://a:65534", Ranks: 2}}},
		{nil, `{"url": "http://a", "events": "tcp://a:5557", "replay": "tcp://b:5557", "ranks": 2}`, nil,
			[]gateway.WorkerConfig{{URL: "http://a", Events: "tcp://a:5557", Replay: "tcp://b:5557", Ranks: 2}}},
	} {
		c := &routeCmd{Worker: tc.flags, WorkersFile: "w.json", ports: tc.ports}
		got, err := c.workers([]byte(`{"workers": [` + tc.file + `]}`))
		if err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%q and %s: %+v, %v, want %+v", tc.flags, tc.file, got, err, tc.want)
		}
		cfg := gateway.Config{Workers: got}.WithDefaults()
		if err := cfg.Validate(); err != nil {
			t.Errorf("%s: the gateway does not take it: %v", tc.file, err)
		}
	}
}

// TestRouteWorkersFaults checks that messages name the file, the worker and the key.
func TestRouteWorkersFaults(t *testing.T) {
	in := func(workers string) string { return `{"workers": [` + workers + `]}` }
	for _, tc := range []struct {
		file string
		want []string
	}{
		{"", []string{"it is empty", `want {"workers": [`}},
		{" \n", []string{"it is empty"}},
		{`{"workers": [`, []string{"it ends inside"}},
		{`{}`, []string{`no "workers"`, `want {"workers": [`}},
		{`null`, []string{`no "workers"`}},
		{`{"workers": null}`, []string{`no "workers"`}},
		{in("") + "{}", []string{"text follows the object"}},
		{in(`{"url": "http://a", "color": 1}`), []string{`"color"`}},
		{`[{"url": "http://a"}]`, []string{": it is a JSON array, want an object; want {"}},
		{in(`{"url": 1}`), []string{`url" can't be a JSON number; want {`}},
		{in(`{"url": "http://a"}, {}`), []string{`worker 2, ""`, "http://host:8080"}},
		{in(`{"url": "ftp://a"}`), []string{`worker 1, "ftp://a"`, "http://host:8080"}},
		{in(`{"url": "http://:80"}`), []string{"http://host:8080"}},
		{in(`{"url": "http://a#b"}`), []string{"http://host:8080"}},
		{in(`{"url": "http://a#"}`), []string{"http://host:8080"}},
		{in(`{"url": "http://a?b"}`), []string{"http://host:8080"}},
		{in(`{"url": "http://me:hidden@a:1"}`), []string{"(secret)", "without a user", "--worker-key"}},
		{in(`{"url": "http://a:65536"}`), []string{"port is 65536"}},
		{in(`{"url": "http://a:0"}`), []string{"port is 0"}},
		{in(`{"url": "http://a/v1"}`), []string{"without /v1"}},
		{in(`{"url": "http://a", "name": "a b"}`), []string{"name", `"a b"`}},
		{in(`{"url": "http://a", "pool": "a b"}`), []string{"pool's name", `"a b"`}},
		{in(`{"url": "http://a", "events": "nonsense"}`), []string{`"events" is "nonsense"`, "tcp://host:5557", "or none"}},
		{in(`{"url": "http://a", "events": "tcp://a"}`), []string{`"events" is "tcp://a"`}},
		{in(`{"url": "http://a", "events": "tcp://*:5557"}`), []string{`"events" is "tcp://*:5557"`}},
		{in(`{"url": "http://a", "events": "tcp://a:0"}`), []string{`"events" is "tcp://a:0"`}},
		{in(`{"url": "http://a", "events": "tcp://a:65535", "ranks": 2}`), []string{"no port 65536", "2 ranks"}},
		{in(`{"url": "http://a", "events": "tcp://a:1", "replay": "a:1"}`), []string{`"replay" is "a:1"`}},
		{in(`{"url": "http://a", "events": "tcp://a:1", "replay": "tcp://a:1"}`), []string{"events, 1 to 1", "overlap"}},
		{in(`{"url": "http://a", "events": "tcp://a:5557", "replay": "tcp://a:5558", "ranks": 2}`), []string{"events, 5557 to 5558, and those for replays, 5558 to 5559"}},
		{in(`{"url": "http://a", "replay": "tcp://a:1"}`), []string{`"replay" needs "events"`}},
		{in(`{"url": "http://a", "events": "none", "replay": "tcp://a:1"}`), []string{`"replay" needs "events"`}},
		{in(`{"url": "http://a", "ranks": -1}, {"url": "http://b", "ranks": 1025}`), []string{`worker 1, "http://a": "ranks" is -1`, `worker 2, "http://b": "ranks" is 1025`}},
		{in(`{"url": "http://a", "pool_tokens": -1}`), []string{`"pool_tokens" is -1`}},
		{in(`{"url": "http://a"}, {"url": "http://a/"}`), []string{"worker 2", "given twice", "worker 1"}},
		{in(`{"url": "http://a", "name": "x"}, {"url": "http://b", "name": "x"}`), []string{"worker 2", `"name"`, "worker 1"}},
	} {
		c := &routeCmd{WorkersFile: "w.json"}
		all, err := c.workers([]byte(tc.file))
		if err == nil {
			t.Errorf("%s: %+v", tc.file, all)
			continue
		}
		for _, want := range append(tc.want, "--workers-file w.json: ") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", tc.file, err, want)
			}
		}
		if strings.Contains(err.Error(), "hidden") {
			t.Errorf("a secret: %v", err)
		}
	}
}

// TestRouteZeros checks that an accepted zero means none rather than the gateway's default.
func TestRouteZeros(t *testing.T) {
	c := &routeCmd{Worker: []string{"http://a"}, serverFlags: serverFlags{MaxBody: 2, MaxBodies: 3, APIKey: "very-secret"}}
	cfg, err := c.gateway(t.Context(), []server.Key{{Secret: c.APIKey, Tenant: "t", Admin: true}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if cfg = cfg.WithDefaults(); cfg.Retries != -1 || cfg.Repeats != -1 || cfg.StallAfter >= 0 || cfg.QueueTimeout != 1 || cfg.MaxBodyBytes != 2 || cfg.MaxBodiesBytes != 3 || cfg.WorkerKey != c.APIKey {
		t.Errorf("%+v", cfg)
	}
}

// TestRouteWorkerKey checks that an admin's key is never sent to unknown workers.
func TestRouteWorkerKey(t *testing.T) {
	admin, tenant := server.Key{Secret: "admin's", Tenant: "root", Admin: true}, server.Key{Secret: "tenant's", Tenant: "acme"}
	for _, tc := range []struct {
		flag     string
		keys     []server.Key
		register bool
		want     string // "" for an error, or for no key
		bad      bool
	}{
		{"", nil, true, "", false},
		{"given", nil, true, "given", false},
		{"given", []server.Key{admin}, true, "given", false},
		{"", []server.Key{admin, tenant}, false, "tenant's", false},
		{"", []server.Key{admin, tenant}, true, "tenant's", false},
		{"", []server.Key{admin}, false, "admin's", false},
		{"", []server.Key{admin}, true, "", true},
	} {
		c := &routeCmd{WorkerKey: tc.flag}
		if got, err := c.workerKey(tc.keys, tc.register); got != tc.want || (err != nil) != tc.bad {
			t.Errorf("--worker-key %q, %v, register %v: %q, %v", tc.flag, tc.keys, tc.register, got, err)
		}
	}
}

// TestPortsThatCannotBe checks that a port out of range gets another error than an address in
// use.
func TestPortsThatCannotBe(t *testing.T) {
	for args, want := range map[string]string{
		"serve --addr 127.0.0.1:99999":                     "--addr is 127.0.0.1:99999: its port is 99999, want 0 (any free port) to 65535",
		"route --addr :99999 --worker http://a:1":          "--addr is :99999: its port is 99999, want 0",
		"route --worker http://a:99999":                    "its port is 99999, want 1 to 65535",
		"route --worker http://a:1 --events zmq://*:99999": "the port is 99999, want 0 to 65535",
		"route --events nats://a:99999":                    "the port is 99999, want 1 to 65535",
		"serve --publish nats://a:99999":                   "the port is 99999, want 1 to 65535",
	} {
		if _, stderr, ok := command(t, strings.Fields(args)...); ok || !strings.Contains(stderr, want) {
			t.Errorf("%s: %v: %s", args, ok, stderr)
		}
	}
}

// TestRouteRecordsNowhere: a directory that is missing is told before anything starts.
func TestRouteRecordsNowhere(t *testing.T) {
	refused(t, []string{"--record", "make the directory first"}, "route", "--worker", "http://127.0.0.1:1", "--record", "none/choices")
}
