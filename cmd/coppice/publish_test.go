package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/gateway"
	"github.com/coppice-llm/coppice/kv"
)

func TestBadPublish(t *testing.T) {
	for _, tc := range []struct{ url, want string }{
		{"here", "want a URL like zmq://*:5557"},
		{"", "want a URL like"},
		{"tcp://*:5557", `"tcp", want zmq, nats or tls`},
		{"zmq://*", "want a host and a port"},
		{"zmq://*:many", "want a host and a port"},
		{"zmq://*:1/path", "want a host and a port"},
		{"zmq://*:65536", "the port is 65536, want 0 to 65535"},
		{"nats://h:99999", "the port is 99999, want 1 to 65535"},
		{"nats://h:4222,g:0", "the port is 0, want 1 to 65535"},
		{"zmq://*:65535", "replay=5558"},
		{"zmq://*:5557?replay=5557", `replay is "5557", want another port`},
		{"zmq://*:5557?replay=-1", `replay is "-1"`},
		{"zmq://*:5557?prefix=x", `unknown parameter "prefix", want one of replay, topic`},
		{"zmq://*:5557?replay=1&replay=2", "replay is given twice"},
		{"zmq://*:5557?%zz", "not a query"},
		{"nats://", "want servers"},
		{"nats://a,,b", "want servers"},
		{"nats://me:hush@a:x", "want servers"},
		{"nats://me:hush@a:1?topic=x", `unknown parameter "topic", want one of prefix, creds, ca`},
		{"nats://a?prefix=a.b", `prefix is "a.b", want no dots`},
		{"nats://a?prefix=*", `prefix is "*"`},
	} {
		f := fleetFlags{Publish: []string{tc.url}, BlockTokens: 16}
		if err := f.check(16); err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v, want %q", tc.url, err, tc.want)
		}
	}
	for _, tc := range []struct {
		flags fleetFlags
		page  int
		want  string
	}{
		{fleetFlags{Name: "a.b"}, 16, `--name: card: invalid: name is "a.b"`},
		{fleetFlags{Advertise: "10.0.0.1:8080"}, 16, `--advertise is "10.0.0.1:8080", want a URL like`},
		{fleetFlags{Advertise: "http://a:1/v1"}, 16, "--advertise"},
		{fleetFlags{Pool: "a b"}, 16, "--pool: card: invalid: the pool's name"},
		{fleetFlags{Publish: []string{"zmq://*:1"}, BlockTokens: 16}, 64, "--block-tokens is 16, want a multiple of --page-tokens (64)"},
		{fleetFlags{Publish: []string{"zmq://*:1"}, BlockTokens: 24}, 16, "--block-tokens is 24"},
	} {
		if err := tc.flags.check(tc.page); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.flags, err, tc.want)
		}
	}
	for _, f := range []fleetFlags{
		{}, {BlockTokens: 5}, {Publish: []string{"zmq://*:1"}, BlockTokens: 4096}, {Name: "w-1", Advertise: "https://[::1]:1/"},
	} {
		if err := f.check(16); err != nil {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

// TestPublishIsPrinted checks that --print-config shows --publish without passwords, from
// every source.
func TestPublishIsPrinted(t *testing.T) {
	t.Setenv("COPPICE_BLOCK_TOKENS", "32")
	for _, args := range [][]string{
		{"--publish", "nats://me:hush@a:1,you:hush2@b:2?prefix=p", "--publish", "zmq://*:1?topic=kv@x@y"},
		{"--publish", "nats://me:hush@a:1,you:hush2@b:2?prefix=p,zmq://*:1?topic=kv@x@y"},
		nil,
	} {
		if args == nil {
			t.Setenv("COPPICE_PUBLISH", "nats://me:hush@a:1,you:hush2@b:2?prefix=p,zmq://*:1?topic=kv@x@y")
		}
		stdout, stderr, ok := command(t, append([]string{"serve", "--print-config"}, args...)...)
		want := `(?m)^publish +` + regexp.QuoteMeta("nats://(secret)@b:2?prefix=p,zmq://*:1?topic=kv@x@y")
		if !ok || !regexp.MustCompile(want).MatchString(stdout) || !regexp.MustCompile(`(?m)^block-tokens +32 +COPPICE_`).MatchString(stdout) {
			t.Errorf("%s %s", stdout, stderr)
		}
		if strings.Contains(stdout+stderr, "hush") {
			t.Errorf("a password is printed: %s %s", stdout, stderr)
		}
	}
	refused(t, []string{"--publish", "(secret)", "want servers"}, "serve", "--publish", "nats://me:hush@a:x")
	stdout, _, _ := command(t, "serve", "--help")
	for _, want := range []string{"zmq://*:5557?replay=5558&topic=T", "nats://a:4222,b:4222?prefix=P", "--block-tokens", "--advertise"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the help lacks %s", want)
		}
	}
}

// oddPasswords contain bytes with a meaning in a URL or in a list of URLs.
var oddPasswords = []string{"QXZJ", "QX?ZJ", "QX?ZJ=1&prefix=ZJ", "QX#ZJ", "QX/ZJ", "QX@ZJ", "QX,ZJ", "QX,x://ZJ", "QX://ZJ", "QX%ZJ", "QX ZJ", "12?ZJ", "QX:ZJ", "QX?creds=ZJ", "QX\"ZJ", "QX\nZJ", "QX\x80ZJ"}

// TestNoPasswordIsTold checks that errors about a URL contain no part of its password.
func TestNoPasswordIsTold(t *testing.T) {
	t.Parallel()
	told := func(err error) bool {
		return strings.Contains(err.Error(), "QX") || strings.Contains(err.Error(), "ZJ")
	}
	for _, password := range oddPasswords {
		for _, format := range []string{"nats://me:%s@a:1", "nats://me:%s@a:x", "tls://me:%s@a,you:%[1]s@b?topic=1", "wrong://me:%s@a", "me:%s@a:1", "nats://me:%s@a:1?creds=/none", "nats://me:%s@a?prefix=*"} {
			text := fmt.Sprintf(format, password)
			if err := (&fleetFlags{Publish: []string{text}, BlockTokens: 16}).check(16); err != nil && told(err) {
				t.Errorf("--publish %q: %v", text, err)
			}
			route := routeCmd{Events: []string{text}, Replicas: text}
			if err := route.events(&gateway.Config{}); err != nil && told(err) {
				t.Errorf("--events %q: %v", text, err)
			}
			if _, err := route.replicas(nil); err != nil && told(err) {
				t.Errorf("--replicas %q: %v", text, err)
			}
		}
		at := fmt.Sprintf("http://me:%s@a:1", password)
		if err := (&fleetFlags{Advertise: at}).check(16); err == nil || told(err) {
			t.Errorf("--advertise %q: %v", at, err)
		}
		if _, err := (&routeCmd{Worker: strings.Split(at, ",")}).workers(nil); err == nil || told(err) {
			t.Errorf("--worker %q: %v", at, err)
		}
		if _, err := (&askFlags{URL: at + ":x"}).client(); err == nil || told(err) {
			t.Errorf("--url %q: %v", at, err)
		}
	}
	for _, tc := range [][]string{
		{"serve", "--print-config", "--otlp-endpoint", "http://me:QX?ZJ@a:1"},
		{"serve", "--print-config", "--otlp-endpoint", "http://me:QXZJ@a:1"},
		{"top", "--once", "--url", "http://me:QXZJ@127.0.0.1:1"},
		{"bench", "serve", "--url", "http://me:QXZJ@127.0.0.1:1"},
		{"bench", "serve", "--url", "http://me:QX?QXZJ@127.0.0.1:1"},
	} {
		if stdout, stderr, _ := command(t, tc...); strings.Contains(stdout+stderr, "ZJ") || strings.Contains(stdout+stderr, "me:QX") {
			t.Errorf("%q: %s %s", tc, stdout, stderr)
		}
	}
}

// TestProfileOf checks that the coefficients predict the times of steps of other shapes.
func TestProfileOf(t *testing.T) {
	for _, name := range sim.Profiles() {
		device, err := sim.ProfileByName(name)
		if err != nil {
			t.Fatal(err)
		}
		p := profileOf(&device)
		c := card.Card{Name: "a", Profile: p}
		if err := c.Validate(); err != nil || p.Step <= 0 || p.Token <= 0 || p.Pair <= 0 || p.KV <= 0 {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
		step := func(rows ...engine.Row) float64 { return device.Step(&engine.Batch{Rows: rows}, 0).Seconds() }
		row := engine.Row{Tokens: make([]kv.Token, 1), Start: 50_000, Sample: true}
		const n, cached = 6000, 10_000
		for what, pair := range map[string][2]float64{
			"four rows that decode":  {p.Step + 4*(p.Row+50_000*p.KV), step(row, row, row, row)},
			"a prompt after another": {p.Token*n + p.Pair*(n*cached+n*(n+1)/2), step(engine.Row{Tokens: make([]kv.Token, n), Start: cached})},
		} {
			if said, takes := pair[0], pair[1]; said < 0.9*takes || said > 1.1*takes {
				t.Errorf("%s, %s: %.3g s, the device takes %.3g", name, what, said, takes)
			}
		}
	}
	if p := profileOf(&sim.Profile{}); p != nil {
		t.Errorf("%+v of a device that costs nothing", p)
	}
}
