// Package extproc owns the conversation with Envoy about each request: Envoy's external processing (ext_proc) with bodies in the
// mode FULL_DUPLEX_STREAMED, as the endpoint picker protocol of the Gateway API's Inference Extension uses it. It chooses no
// worker and sends no request: a gateway.Gateway chooses, and Envoy sends.
//
// One goroutine serves one stream, which is one request. It pulls the parts of the request and of the answer from
// the stream as it needs them, so a slow part holds up nothing but its own request.
//
//	s, err := extproc.New(extproc.Config{Gateway: g})
//	server := grpc.NewServer()
//	extprocv3.RegisterExternalProcessorServer(server, s)
package extproc
