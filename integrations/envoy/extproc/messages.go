package extproc

import (
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/coppice-llm/coppice/gateway"
)

// chunkBytes is the most bytes of a body in one message to Envoy.
const chunkBytes = 60 << 10

// refuse answers the request itself, which ends it.
func (x *exchange) refuse(a *gateway.Answer) error {
	a.Header.Del("Content-Length") // Envoy computes it
	x.send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: &extprocv3.ImmediateResponse{
		Status: &typev3.HttpStatus{Code: typev3.StatusCode(a.Status)}, Headers: setHeaders(a.Header), Body: a.Body, Details: "coppice_epp",
	}}})
	return x.lost
}

// send sends a message. After an error there is nothing more to receive.
func (x *exchange) send(m *extprocv3.ProcessingResponse) error {
	err := x.stream.Send(m)
	if err != nil && x.lost == nil {
		x.lost = err
	}
	return err
}

// setHeaders returns the change that sets these headers, in order of their names.
func setHeaders(h http.Header) *extprocv3.HeaderMutation {
	m := &extprocv3.HeaderMutation{}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for i, value := range h[name] {
			action := corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
			if i > 0 {
				action = corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
			}
			m.SetHeaders = append(m.SetHeaders, &corev3.HeaderValueOption{
				Header: &corev3.HeaderValue{Key: strings.ToLower(name), RawValue: []byte(value)}, AppendAction: action,
			})
		}
	}
	return m
}

// forward tells Envoy where the request goes, and sends the body.
func (x *exchange) forward() error {
	body, to := x.pick.Body(), x.pick.Worker()
	addrs := append([]string{to.Host}, x.pick.Fallbacks()...)
	destination := strings.Join(addrs, ",")
	h := http.Header{}
	x.pick.Header(h)
	mutation := setHeaders(h)
	set := func(name, value string) {
		mutation.SetHeaders = append(mutation.SetHeaders, setHeaders(http.Header{name: {value}}).SetHeaders...)
	}
	set(headerDestination, destination)
	if len(addrs) > 1 && x.pick.Repeatable() {
		set(headerRetryOn, "reset")
	}
	if x.body.began && !x.body.trailers {
		set("content-length", strconv.Itoa(len(body)))
	}
	if path := x.pick.Path(); path != "" {
		set(":path", path)
	}
	err := x.send(&extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{
			Response: &extprocv3.CommonResponse{ClearRouteCache: true, HeaderMutation: mutation},
		}},
		DynamicMetadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			metadataDestination: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
				headerDestination: structpb.NewStringValue(destination),
			}}),
		}},
	})
	if err != nil || !x.body.began && !x.body.trailers {
		return err
	}
	if err := sendBody(x, body, !x.body.trailers, requestChunk); err != nil || !x.body.trailers {
		return err
	}
	return x.send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: &extprocv3.TrailersResponse{}}})
}

// sendBody sends a part of a body in messages that make makes. last says that the body ends with it; an empty part that does not end
// the body is not sent.
func sendBody(x *exchange, body []byte, last bool, make func(*extprocv3.BodyResponse) *extprocv3.ProcessingResponse) error {
	for len(body) > 0 || last {
		n := min(len(body), chunkBytes)
		end := last && n == len(body)
		err := x.send(make(&extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{
			Mutation: &extprocv3.BodyMutation_StreamedResponse{StreamedResponse: &extprocv3.StreamedBodyResponse{Body: body[:n], EndOfStream: end}},
		}}}))
		if err != nil || end {
			return err
		}
		body = body[n:]
	}
	return nil
}

func requestChunk(b *extprocv3.BodyResponse) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: b}}
}

func responseChunk(b *extprocv3.BodyResponse) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: b}}
}

// relay passes the answer on and reports it to the gateway, until Envoy closes the stream.
func (x *exchange) relay() error {
	for begun, ended := false, false; ; {
		m, err := x.recv()
		if err != nil {
			return err
		}
		of := m.GetRequest()
		if _, head := of.(*extprocv3.ProcessingRequest_ResponseHeaders); head == begun || ended {
			return violation("a message %T came where the protocol has none", of)
		}
		switch of := of.(type) {
		case *extprocv3.ProcessingRequest_ResponseHeaders:
			begun, ended = true, of.ResponseHeaders.GetEndOfStream()
			err = x.begin(of.ResponseHeaders, m.GetMetadataContext())
		case *extprocv3.ProcessingRequest_ResponseBody:
			ended = of.ResponseBody.GetEndOfStream()
			err = sendBody(x, x.pick.Pass(of.ResponseBody.GetBody(), ended), ended, responseChunk)
		case *extprocv3.ProcessingRequest_ResponseTrailers:
			ended = true
			if err = sendBody(x, x.pick.Pass(nil, true), false, responseChunk); err == nil {
				err = x.send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}}})
			}
		default:
			err = violation("a message %T came after the request had ended", of)
		}
		if err != nil {
			return err
		}
	}
}

// begin passes the header of the answer on, with the gateway's headers.
func (x *exchange) begin(head *extprocv3.HttpHeaders, metadata *corev3.Metadata) error {
	code, h := 0, http.Header{}
	for _, v := range head.GetHeaders().GetHeaders() {
		switch v.GetKey() {
		case ":status":
			code, _ = strconv.Atoi(valueOf(v))
		case "content-type", "content-encoding": // all that the gateway looks at
			h.Add(v.GetKey(), valueOf(v))
		}
	}
	served, _, _ := strings.Cut(text(metadata, metadataDestination, keyServed), ",")
	x.pick.Begin(code, h, head.GetEndOfStream(), served)
	h.Del("Content-Type")
	h.Del("Content-Encoding")
	if x.s.cfg.Conformance && served != "" {
		h.Set(headerServed, served)
	}
	return x.send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{
		Response: &extprocv3.CommonResponse{HeaderMutation: setHeaders(h)},
	}}})
}

// field returns a value of the filters' metadata, nil if there is none.
func field(m *corev3.Metadata, namespace, key string) *structpb.Value {
	return m.GetFilterMetadata()[namespace].GetFields()[key]
}

// text is field for a string, "" for other values.
func text(m *corev3.Metadata, namespace, key string) string {
	return field(m, namespace, key).GetStringValue()
}

// subset returns the endpoints to which Envoy restricts the choice, nil if it does not. A value of a wrong type restricts to nothing.
func subset(m *corev3.Metadata) []string {
	v := field(m, metadataSubset, keySubset)
	switch kind := v.GetKind().(type) {
	case nil, *structpb.Value_NullValue:
		return nil
	case *structpb.Value_StringValue:
		return addresses(kind.StringValue)
	}
	all := []string{}
	for _, one := range v.GetListValue().GetValues() {
		all = append(all, addresses(one.GetStringValue())...)
	}
	return all
}

// addresses splits a list of addresses at its commas. It is not nil.
func addresses(list string) []string {
	all := []string{}
	for addr := range strings.SplitSeq(list, ",") {
		if addr = strings.TrimSpace(addr); addr != "" {
			all = append(all, addr)
		}
	}
	return all
}

// selection returns the endpoints that a conformance test asks for, nil if it asks for none. An address without a port stands for
// all workers there.
func (x *exchange) selection(h http.Header) []string {
	list := h.Get(headerSelection)
	if list == "" {
		return nil
	}
	all := []string{}
	for _, addr := range addresses(list) {
		if _, _, err := net.SplitHostPort(addr); err == nil {
			all = append(all, addr)
			continue
		}
		for _, w := range x.s.cfg.Gateway.Fleet().Workers {
			if host := strings.TrimPrefix(w.URL, "http://"); strings.HasPrefix(host, addr+":") {
				all = append(all, host)
			}
		}
	}
	return all
}
