// Command coppice-epp is an endpoint picker for Envoy and the Gateway API's Inference Extension: Envoy asks it where to send each
// request, and it chooses as coppice route does. See docs/envoy.md.
package main

import (
	"context"
	"os"

	"github.com/alecthomas/kong"
)

func main() {
	c := command{}
	ctx := kong.Parse(&c, kong.Name("coppice-epp"), kong.UsageOnError(), kong.Description(
		"Endpoint picker for Envoy and the Gateway API's Inference Extension. It tokenizes prompts, knows what each worker has cached, and "+
			"chooses the worker for each request as coppice route does. Each flag can be given as an environment variable too: COPPICE_EPP_LISTEN for --listen."),
		kong.DefaultEnvars("COPPICE_EPP"), kong.BindTo(context.Background(), (*context.Context)(nil)))
	if err := ctx.Run(); err != nil {
		ctx.Errorf("%v", err)
		os.Exit(1)
	}
}
