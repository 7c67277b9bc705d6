package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/coppice-llm/coppice/internal/leaks"
	"github.com/coppice-llm/coppice/router"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

const long = time.Minute

// parse reads a command line.
func parse(t *testing.T, args ...string) (*command, error) {
	t.Helper()
	c := &command{}
	k, err := kong.New(c, kong.Name("coppice-epp"), kong.DefaultEnvars("COPPICE_EPP"), kong.Exit(func(int) { t.Fatal("kong exits") }))
	if err != nil {
		t.Fatal(err)
	}
	_, err = k.Parse(args)
	return c, err
}

// routeFlag finds the flags of coppice route in its source: fields with their type, default and name.
var routeFlag = regexp.MustCompile("(?m)^\t(\\w+) +(\\S+) +`([^`]*help:[^`]*)`")

// unlike are the flags of coppice route that the picker lacks, or has in another form, with the reason.
var unlike = map[string]string{
	"config": "flags and environment suffice in a pod", "print-config": "the same", "addr": "listen and http",
	"worker": "names stand for addresses", "workers-file": "the same", "retries": "Envoy sends the requests", "repeats": "the same",
	"default-ttft-ms": "not yet", "default-itl-ms": "not yet", "api-key": "a file is safer",
	"events": "a shorter text", "replicas": "", "consolidate": "", "record": "not yet", "record-bytes": "not yet", "record-max": "not yet",
}

// TestFlagsAreRoutes compares the flags about the choice with those of coppice route: the same names, types and defaults.
func TestFlagsAreRoutes(t *testing.T) {
	own := map[string]reflect.StructField{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[chooseFlags]()) {
		if f.IsExported() {
			own[nameOf(f.Name, f.Tag)] = f
		}
	}
	seen := 0
	for _, file := range []string{"route.go", "route_pools.go"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "cmd", "coppice", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range routeFlag.FindAllStringSubmatch(string(text), -1) {
			tag := reflect.StructTag(m[3])
			name := nameOf(m[1], tag)
			f, ok := own[name]
			if !ok {
				if _, known := unlike[name]; !known {
					t.Errorf("coppice route has --%s, and the picker does not: add it, or say here why not", name)
				}
				continue
			}
			seen++
			if got := f.Tag.Get("default"); got != tag.Get("default") {
				t.Errorf("--%s: the default is %q, that of coppice route %q", name, got, tag.Get("default"))
			}
			if got := f.Type.String(); got != m[2] && m[2] != "modelPath" {
				t.Errorf("--%s is a %s, at coppice route a %s", name, got, m[2])
			}
		}
	}
	if seen < 25 {
		t.Errorf("only %d flags were found", seen)
	}
}

func nameOf(field string, tag reflect.StructTag) string {
	if name := tag.Get("name"); name != "" {
		return name
	}
	return strings.ToLower(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(field, "$1-$2"))
}

// TestFlags checks command lines that are refused, with the flag in the message.
func TestFlags(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("# keys\nacme: secretsecret\nops: adminadmin admin\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"--worker http://a:1": "",
		"--worker http://a:1 --events zmq://*:5557?replay=0 --policy round-robin --weight x=1": "--weight",
		"--worker http://a:1 --events zmq+bind://*:5557?topic=kv":                              "",
		"--worker http://a:1 --events zmq+bind://*:x":                                          "--events",
		"--worker http://a:1 --events zmq+bind://*:1,zmq+bind://*:2":                           "--events",
		"--worker http://a:1 --events none,auto":                                               "--events none",
		"--worker http://a:1 --events zmq://a:5557":                                            "--events",
		"--worker http://a:1 --events zmq://*:1,zmq://*:2":                                     "--events",
		"--worker http://a:1 --consolidate zmq://b:1":                                          "--consolidate",
		"--worker http://a:1 --replicas auto":                                                  "--replicas",
		"--worker http://a:1 --replicas nats:":                                                 "--replicas",
		"--worker http://a:1 --api-key-file /nowhere":                                          "--api-key-file",
		"--worker http://a:1 --pools /nowhere":                                                 "--pools",
		"--worker http://a:1 --model /nowhere":                                                 "--model",
		"--worker http://a:1 --tls-cert x":                                                     "belong together",
		"--worker http://a:1 --tls-cert x --tls-key y --self-signed":                           "--self-signed",
		"--worker http://a:1 --tls-cert /nowhere --tls-key /nowhere":                           "--tls-cert",
		"--worker http://a:1 --fallbacks 17":                                                   "Fallbacks",
		"--worker http://a:1 --pool p":                                                         "exclude",
		"--pool p --kubeconfig /nowhere":                                                       "--kubeconfig",
		"":                                                                                     "no workers",
		"--worker http://a:1 --policy 2025 --salts plain --no-predict --objective chat=5 --api-key-file " + keys: "",
	} {
		c, err := parse(t, strings.Fields(line)...)
		if err == nil {
			_, err = c.gateway(zap.NewNop())
		}
		if err == nil {
			_, err = c.source(zap.NewNop())
		}
		if err == nil {
			_, err = c.credentials()
		}
		if err == nil && c.Fallbacks > 16 {
			continue // extproc.New refuses it
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", line, err, want)
		}
	}
	c, err := parse(t, "--worker", "http://a:1", "--policy", "2025", "--weight", "score=2", "--api-key-file", keys, "--events-outlast", "0s", "--stall-after", "0s", "--queue-timeout", "0s")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := c.gateway(zap.NewNop())
	if err != nil || cfg.WorkerKey != "secretsecret" || cfg.Tenant == nil || cfg.Router.Policy != router.Cost2025 || cfg.Router.Weights.Score != 2 ||
		cfg.EventOutlast >= 0 || cfg.StallAfter >= 0 || cfg.QueueTimeout != 1 {
		t.Errorf("%v, %+v", err, cfg)
	}
}

// newWorker starts a worker that answers probes.
func newWorker(t *testing.T) string {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"data":[{"id":"m"}]}`) })
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// TestServe runs a picker with TLS, asks it over gRPC for its health and for an endpoint, and drains it.
func TestServe(t *testing.T) {
	worker := newWorker(t)
	c, err := parse(t, "--worker", worker, "--listen", "127.0.0.1:0", "--health", "127.0.0.1:0", "--http", "127.0.0.1:0", "--self-signed", "--probe-every", "10ms", "--events", "none")
	if err != nil {
		t.Fatal(err)
	}
	signals, at, done := make(chan os.Signal, 2), make(chan addresses, 1), make(chan error, 1)
	go func() { done <- c.serve(t.Context(), signals, zap.NewNop(), func(a addresses) { at <- a }) }()
	var a addresses
	select {
	case a = <-at:
	case err := <-done:
		t.Fatal(err)
	}
	dial := func(addr string, security credentials.TransportCredentials) *grpc.ClientConn {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(security))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	secure, plain := dial(a.listen.String(), credentials.NewTLS(trusting())), dial(a.health.String(), insecure.NewCredentials())
	check := func(conn *grpc.ClientConn, service string) healthpb.HealthCheckResponse_ServingStatus {
		r, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil {
			t.Errorf("%q: %v", service, err)
		}
		return r.GetStatus()
	}
	for _, conn := range []*grpc.ClientConn{secure, plain} {
		for _, service := range append(slices.Clone(services), "liveness") {
			for end := time.Now().Add(long); check(conn, service) != healthpb.HealthCheckResponse_SERVING; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%q does not serve", service)
				}
			}
		}
	}
	r, err := http.Get("http://" + a.http.String() + "/metrics")
	if err != nil || r.StatusCode != 200 {
		t.Errorf("metrics: %v", err)
	} else {
		r.Body.Close()
	}

	stream, err := extprocv3.NewExternalProcessorClient(secure).Process(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	send := func(m *extprocv3.ProcessingRequest) {
		t.Helper()
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
		{Key: ":method", RawValue: []byte("POST")}, {Key: ":path", RawValue: []byte("/v1/completions")}, {Key: ":authority", RawValue: []byte("models.example")},
	}}}}})
	send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: []byte(`{"prompt":"hello"}`), EndOfStream: true}}})
	m, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if at := m.GetDynamicMetadata().GetFields()["envoy.lb"].GetStructValue().GetFields()["x-gateway-destination-endpoint"].GetStringValue(); "http://"+at != worker {
		t.Errorf("the destination is %s, want %s", at, worker)
	}

	// SIGTERM: the picker is no longer ready, and the open request ends as it would have.
	signals <- syscall.SIGTERM
	for end := time.Now().Add(long); check(plain, "readiness") != healthpb.HealthCheckResponse_NOT_SERVING; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a draining picker is ready")
		}
	}
	send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{EndOfStream: true,
		Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{{Key: ":status", RawValue: []byte("200")}}}}}})
	for m.GetResponseHeaders() == nil {
		if m, err = stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	stream.CloseSend()
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestServeEnds checks that a picker whose parts can't start ends with the reason, and leaves nothing open.
func TestServeEnds(t *testing.T) {
	for line, want := range map[string]string{
		"--worker http://127.0.0.1:1 --listen 192.0.2.1:1":                                                                      "--listen",
		"--worker http://127.0.0.1:1 --listen 127.0.0.1:0 --health 192.0.2.1:1":                                                 "--health",
		"--worker http://127.0.0.1:1 --listen 127.0.0.1:0 --http 192.0.2.1:1":                                                   "--http",
		"--worker http://127.0.0.1:1 --listen 127.0.0.1:0 --fallbacks 17":                                                       "Fallbacks",
		"--worker http://127.0.0.1:1 --listen 127.0.0.1:0 --http 127.0.0.1:0 --workers-file " + filepath.Join(t.TempDir(), "x"): "workers' file",
		"--worker ftp://127.0.0.1:1 --listen 127.0.0.1:0 --http 127.0.0.1:0":                                                    "ftp",
	} {
		c, err := parse(t, strings.Fields(line)...)
		if err == nil {
			err = c.serve(context.Background(), make(chan os.Signal), zap.NewNop(), nil)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// TestPublishAt checks the events' addresses that --events zmq://*:PORT gives each worker.
func TestPublishAt(t *testing.T) {
	c, err := parse(t, "--worker", "http://a:1", "--events", "zmq://*:5557?replay=5600&topic=kv")
	if err == nil {
		_, err = c.gateway(zap.NewNop())
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.source(zap.NewNop())
	if err != nil || s.priority != nil {
		t.Fatal(err)
	}
	got := c.publishAt(append(workersOf("http://10.0.0.1:8000", "http://[fd00::1]:8000"), workersOf("http://10.0.0.2:8000")...))
	want := "tcp://10.0.0.1:5557 tcp://10.0.0.1:5600 kv, tcp://[fd00::1]:5557 tcp://[fd00::1]:5600 kv, tcp://10.0.0.2:5557 tcp://10.0.0.2:5600 kv"
	var all []string
	for _, w := range got {
		all = append(all, fmt.Sprint(w.Events, " ", w.Replay, " ", w.Topic))
	}
	if text := strings.Join(all, ", "); text != want {
		t.Errorf("%s, want %s", text, want)
	}
}
