package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"strings"
)

// healthCmd is coppice health: the health check of a container that has no other program.
type healthCmd struct {
	URL   string `name:"url" placeholder:"URL" help:"URL of the server. Default: that of COPPICE_ADDR, else http://127.0.0.1:8080."`
	Ready bool   `help:"Fail also while the server starts or drains."`
}

// Run is called by kong.
func (c *healthCmd) Run(ctx context.Context) error {
	client, err := (&askFlags{URL: cmp.Or(c.URL, localURL(os.Getenv(envName("addr"))))}).client()
	if err != nil {
		return err
	}
	path := "/health"
	if c.Ready {
		path = "/ready"
	}
	answer, err := client.send(ctx, "GET", path, nil)
	if err != nil {
		return err
	}
	return answer.Close()
}

// localURL returns the URL at which this machine reaches a server that listens on addr.
func localURL(addr string) string {
	host, port, err := net.SplitHostPort(strings.TrimSpace(addr))
	if err != nil {
		return "http://127.0.0.1:8080"
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip != nil && ip.To4() == nil {
			host = "::1"
		}
	}
	return fmt.Sprintf("http://%s", net.JoinHostPort(host, port))
}
