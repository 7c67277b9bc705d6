package eventurl

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/events/nats"
)

func TestParseAll(t *testing.T) {
	for text, want := range map[string][]Target{
		"zmq://*:5557":                            {{ZMQ: &ZMQ{"*", 5557, 5558, ""}}},
		"zmq://:5557?replay=0":                    {{ZMQ: &ZMQ{"*", 5557, -1, ""}}},
		"zmq://127.0.0.1:0":                       {{ZMQ: &ZMQ{"127.0.0.1", 0, 0, ""}}},
		"zmq://127.0.0.1:0?replay=0&topic=kv@a@b": {{ZMQ: &ZMQ{"127.0.0.1", 0, -1, "kv@a@b"}}},
		"zmq://[::1]:65535?replay=1":              {{ZMQ: &ZMQ{"::1", 65535, 1, ""}}},
		"nats://a:4222":                           {{NATS: &nats.Config{URL: "nats://a:4222"}}},
		"tls://me:pass@a:4222,b/?prefix=p":        {{NATS: &nats.Config{URL: "tls://me:pass@a:4222,tls://b", Prefix: "p"}}},
		"nats://a:1,b:2, zmq://*:1?topic=x,y,nats://c": {
			{NATS: &nats.Config{URL: "nats://a:1,nats://b:2"}}, {ZMQ: &ZMQ{"*", 1, 2, "x,y"}}, {NATS: &nats.Config{URL: "nats://c"}},
		},
	} {
		got, err := ParseAll([]string{text})
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	got, err := ParseAll([]string{"zmq://*:1", "nats://a,b"}) // given twice
	if err != nil || len(got) != 2 || got[1].NATS.URL != "nats://a,nats://b" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestRedact: hosts and parameters stay; no byte of a password does, whatever bytes it
// has.
func TestRedact(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "auto": "auto", "10.0.0.1:8080": "10.0.0.1:8080", "nats://a:4222,b?prefix=p": "nats://a:4222,b?prefix=p", "tls://[::1]:1/": "tls://[::1]:1/",
		"zmq://*:5557?topic=kv@x@y": "zmq://*:5557?topic=kv@x@y", "zmq://*:many": "zmq://*:many", "zmq+bind://*:5557?topic=kv@": "zmq+bind://*:5557?topic=kv@", "http://host:80/v1": "http://host:80/v1",
		"nats://me:QXZJ@a:1?creds=f": "nats://(secret)@a:1?creds=f", "nats://me:QXZJ": "nats://(secret)", "me:QXZJ@a:1": "(secret)@a:1", "nats://hush@a": "nats://(secret)@a",
	} {
		if got := Redact(text); got != want {
			t.Errorf("%s is shown as %s, want %s", text, got, want)
		}
	}
	for _, password := range oddPasswords {
		for _, format := range []string{"nats://me:%s@a:1", "nats://me:%s@a:1,you:%[1]s@b", "tls://%s@a:1?prefix=p", "http://me:%s@a:1/v1", "me:%s@a:1"} {
			text := fmt.Sprintf(format, password)
			if got := Redact(text) + RedactAll([]string{text}); strings.Contains(got, "QX") || strings.Contains(got, "ZJ") {
				t.Errorf("%s is shown as %s", text, got)
			}
		}
	}
}

// oddPasswords contain bytes with a meaning in URLs or in lists of URLs.
var oddPasswords = []string{"QXZJ", "QX?ZJ", "QX?ZJ=1&prefix=ZJ", "QX#ZJ", "QX/ZJ", "QX@ZJ", "QX,ZJ", "QX,x://ZJ", "QX://ZJ", "QX%ZJ", "QX ZJ", "12?ZJ", "QX:ZJ", "QX?creds=ZJ", "QX\"ZJ", "QX\nZJ", "QX\x80ZJ"}
