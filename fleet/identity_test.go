package fleet

import (
	"net"
	"regexp"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/events/card"
)

func TestIdentity(t *testing.T) {
	at := func(text string) net.Addr {
		a, err := net.ResolveTCPAddr("tcp", text)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	name, reached, err := (&Config{Addr: at("127.0.0.1:80"), TLS: true}).identity()
	if err != nil || card.CheckName(name) != nil || !regexp.MustCompile(`-80-[0-9a-f]{6}$`).MatchString(name) || reached != "https://127.0.0.1:80" {
		t.Errorf("%q at %q, %v", name, reached, err)
	}
	for _, all := range []string{"0.0.0.0:80", "[::]:80"} {
		if _, reached, err := (&Config{Addr: at(all)}).identity(); err != nil || reached == "http://"+all || !strings.HasSuffix(reached, ":80") {
			t.Errorf("%q at %q, %v", all, reached, err)
		}
	}
	name, reached, err = (&Config{Name: "w", URL: "http://host:1/", Addr: at("[::]:80")}).identity()
	if err != nil || name != "w" || reached != "http://host:1" {
		t.Errorf("%q at %q, %v", name, reached, err)
	}
}
