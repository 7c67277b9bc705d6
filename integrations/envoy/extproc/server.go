package extproc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/coppice-llm/coppice/gateway"
)

// Config configures a Server. Gateway is required.
type Config struct {
	// Gateway chooses the workers.
	Gateway *gateway.Gateway
	// Fallbacks is the most workers named to Envoy beside the chosen one, 0 to MaxFallbacks. An ORIGINAL_DST cluster takes
	// one address only; the load balancing policy override_host takes several. A filter may ask for another number in the initial
	// metadata of its streams, as coppice-fallbacks.
	Fallbacks int
	// Priority returns the priority of an objective, which a request names in its header, "" if it names none; false if there is no such
	// objective. Default: none is known.
	Priority func(objective string) (priority int, ok bool)
	// WritePriority writes the priority of the request's objective into the body as the field "priority", which vLLM and Coppice
	// take. vLLM refuses such requests unless it schedules by priority.
	WritePriority bool
	// Conformance obeys the header that the extension's conformance tests send to say which endpoints may be chosen.
	Conformance bool
}

// MaxFallbacks is the largest number of fallbacks.
const MaxFallbacks = 16

// Server is the service envoy.service.ext_proc.v3.ExternalProcessor. Its methods may be called from any goroutine.
type Server struct {
	extprocv3.UnimplementedExternalProcessorServer
	cfg Config
}

// New makes a Server. It reports all faults of cfg.
func New(cfg Config) (*Server, error) {
	var errs []error
	if cfg.Gateway == nil {
		errs = append(errs, errors.New("extproc: Gateway is nil"))
	}
	if cfg.Fallbacks < 0 || cfg.Fallbacks > MaxFallbacks {
		errs = append(errs, fmt.Errorf("extproc: Fallbacks is %d, want 0 to %d", cfg.Fallbacks, MaxFallbacks))
	}
	if cfg.Priority == nil {
		cfg.Priority = func(string) (int, bool) { return 0, false }
	}
	return &Server{cfg: cfg}, errors.Join(errs...)
}

// Headers and metadata of the endpoint picker protocol (Gateway API Inference Extension, proposal 004).
const (
	headerDestination = "x-gateway-destination-endpoint"
	headerObjective   = "x-gateway-inference-objective"
	headerFairness    = "x-gateway-inference-fairness-id"
	headerModel       = "x-gateway-model-name-rewrite"
	headerSelection   = "test-epp-endpoint-selection" // of the conformance tests
	headerServed      = "x-conformance-test-served-endpoint"

	// headerRetryOn adds a reason for which Envoy sends the request to a fallback. Envoy drops it unless the filter's
	// mutation_rules have allow_envoy. The num_retries of the route's retry_policy bounds it.
	headerRetryOn = "x-envoy-retry-on"

	metadataDestination = "envoy.lb"
	metadataSubset      = "envoy.lb.subset_hint"
	keySubset           = "x-gateway-destination-endpoint-subset"
	keyServed           = "x-gateway-destination-endpoint-served"
)

// Process serves one request. Envoy closes the stream after the answer, or earlier if the client has left.
func (s *Server) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	x := exchange{s: s, stream: stream}
	defer x.end()
	err := x.run()
	if errors.Is(err, io.EOF) {
		return nil // Envoy has closed the stream
	}
	return err
}

// metadataFallbacks is the key of a stream's initial metadata with the number of fallbacks that the filter wants.
const metadataFallbacks = "coppice-fallbacks"

// fallbacks returns the number of fallbacks for a stream. A number out of range counts as the nearest one, and another text as not given.
func (s *Server) fallbacks(ctx context.Context) int {
	for _, text := range metadata.ValueFromIncomingContext(ctx, metadataFallbacks) {
		if n, err := strconv.Atoi(text); err == nil {
			return min(max(n, 0), MaxFallbacks)
		}
	}
	return s.cfg.Fallbacks
}

// exchange is one request and its answer.
type exchange struct {
	s      *Server
	stream extprocv3.ExternalProcessor_ProcessServer
	pick   *gateway.Pick // nil until a worker is chosen
	body   requestBody
	lost   error // why there is nothing more to receive
}

// end gives the request's place back.
func (x *exchange) end() {
	if x.pick != nil {
		x.pick.End()
	}
}

// run is Process, with io.EOF when Envoy closes the stream.
func (x *exchange) run() error {
	first, err := x.recv()
	if err != nil {
		return err
	}
	head := first.GetRequestHeaders()
	if head == nil {
		return violation("the first message is %T, want request headers", first.GetRequest())
	}
	if err := checkModes(first.GetProtocolConfig()); err != nil {
		return err
	}
	r, err := x.request(head)
	if err != nil {
		return x.refuse(&gateway.Answer{Status: http.StatusBadRequest, Body: []byte(err.Error())})
	}
	priority, known := x.s.cfg.Priority(r.Header.Get(headerObjective))
	wants := gateway.Wants{
		Fallbacks: x.s.fallbacks(x.stream.Context()), Among: subset(first.GetMetadataContext()), Tenant: r.Header.Get(headerFairness),
		Priority: int32(min(max(priority, math.MinInt32), math.MaxInt32)),
		Edit:     edit(r.Header.Get(headerModel), priority, known && x.s.cfg.WritePriority),
	}
	if x.s.cfg.Conformance && wants.Among == nil {
		wants.Among = x.selection(r.Header)
	}
	pick, answer := x.s.cfg.Gateway.Pick(r, wants)
	x.pick = pick
	switch {
	case x.lost != nil:
		return x.lost
	case pick == nil && r.Context().Err() != nil:
		return io.EOF
	case pick == nil:
		return x.refuse(answer)
	}
	if err := x.forward(); err != nil {
		return err
	}
	return x.relay()
}

// recv returns the next message. After the first error it returns that error again.
func (x *exchange) recv() (*extprocv3.ProcessingRequest, error) {
	if x.lost != nil {
		return nil, x.lost
	}
	m, err := x.stream.Recv()
	if err != nil {
		x.lost = err
		return nil, err
	}
	return m, nil
}

// violation is the error for a message that the protocol does not allow.
func violation(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, "coppice-epp: "+format, args...)
}

// checkModes returns an error unless bodies come in the mode that this package serves. Older versions of Envoy do not tell.
func checkModes(c *extprocv3.ProtocolConfiguration) error {
	const want = extprocfilterv3.ProcessingMode_FULL_DUPLEX_STREAMED
	if c == nil || c.RequestBodyMode == want && c.ResponseBodyMode == want {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition,
		"coppice-epp: Envoy sends bodies in the modes %v and %v; set request_body_mode and response_body_mode of the ext_proc filter to FULL_DUPLEX_STREAMED, "+
			"and request_trailer_mode and response_trailer_mode to SEND", c.RequestBodyMode, c.ResponseBodyMode)
}

// request makes an HTTP request of the headers; its body comes from the stream.
func (x *exchange) request(head *extprocv3.HttpHeaders) (*http.Request, error) {
	r := &http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, ContentLength: -1}
	path := ""
	for _, h := range head.GetHeaders().GetHeaders() {
		switch value := valueOf(h); h.GetKey() {
		case ":method":
			r.Method = value
		case ":path":
			path = value
		case ":authority", "host":
			r.Host = value
		case "content-length":
			if n, err := strconv.ParseInt(value, 10, 64); err == nil && n >= 0 {
				r.ContentLength = n
			}
		default:
			if !strings.HasPrefix(h.GetKey(), ":") {
				r.Header.Add(h.GetKey(), value)
			}
		}
	}
	u, err := url.ParseRequestURI(path)
	if err != nil || r.Method == "" {
		return nil, errors.New("the request has no valid method and path")
	}
	r.URL, r.RequestURI = u, path
	r.Body = http.NoBody
	if head.GetEndOfStream() {
		r.ContentLength = 0
		x.body.ended = true
	} else {
		x.body.x = x
		r.Body = &x.body
	}
	return r.WithContext(x.stream.Context()), nil
}

// valueOf returns the value of a header, which newer versions of Envoy send as bytes.
func valueOf(h *corev3.HeaderValue) string {
	if raw := h.GetRawValue(); len(raw) > 0 {
		return string(raw)
	}
	return h.GetValue()
}

// requestBody is the body of a request, as it comes from Envoy.
type requestBody struct {
	x        *exchange
	left     []byte // of the last message
	began    bool   // there was a message with a part of the body, even an empty one
	ended    bool
	trailers bool // trailers ended the body
}

// Read implements io.Reader.
func (b *requestBody) Read(p []byte) (int, error) {
	for len(b.left) == 0 {
		if b.ended {
			return 0, io.EOF
		}
		m, err := b.x.recv()
		if err != nil {
			return 0, io.ErrUnexpectedEOF
		}
		switch m := m.GetRequest().(type) {
		case *extprocv3.ProcessingRequest_RequestBody:
			b.left, b.ended, b.began = m.RequestBody.GetBody(), m.RequestBody.GetEndOfStream(), true
		case *extprocv3.ProcessingRequest_RequestTrailers:
			b.ended, b.trailers = true, true
		default:
			b.x.lost = violation("a message %T came before the request's body had ended", m)
			return 0, io.ErrUnexpectedEOF
		}
	}
	n := copy(p, b.left)
	b.left = b.left[n:]
	return n, nil
}

// Close implements io.Closer.
func (b *requestBody) Close() error { return nil }
