module github.com/coppice-llm/coppice/integrations/envoy

go 1.26.0

replace github.com/coppice-llm/coppice => ../..

require (
	github.com/alecthomas/kong v1.17.0
	github.com/coppice-llm/coppice v0.0.0-00010101000000-000000000000
	github.com/envoyproxy/go-control-plane/envoy v1.40.0
	google.golang.org/grpc v1.85.0
	k8s.io/apimachinery v0.37.2
	k8s.io/client-go v0.37.2
)
