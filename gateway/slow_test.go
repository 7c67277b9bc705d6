package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coppice-llm/coppice/conversation"
)

// TestSlowClients: no client can hold a connection forever with a body that does not arrive or
// an answer that it does not read, at any endpoint, with or without the right to use it.
func TestSlowClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 10 * time.Second
		front := newPipes()
		g, err := New(Config{ReadTimeout: limit, WriteTimeout: limit, Tenant: func(r *http.Request) (string, bool, error) {
			if r.Header.Get("Authorization") != "boss" {
				return "", false, &conversation.Error{Status: 401, Message: "who are you?"}
			}
			return "", true, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { g.Close() })
		front.serve(t, g)
		send := func(head string) io.ReadCloser {
			conn, err := front.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			conn.SetDeadline(time.Now().Add(time.Hour)) // a fake clock that advances only while all goroutines wait
			if _, err := io.WriteString(conn, head+"\r\nHost: localhost\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			return conn
		}
		for head, want := range map[string]string{
			"POST /v1/completions HTTP/1.1\r\nContent-Length: 9":                                   " 401 ",
			"POST /v1/completions HTTP/1.1\r\nAuthorization: boss\r\nContent-Length: 9":            " 408 ",
			"POST /v1/none HTTP/1.1\r\nTransfer-Encoding: chunked":                                 " 404 ",
			"PUT /v1/fleet/weights HTTP/1.1\r\nAuthorization: boss\r\nContent-Length: 9":           " 400 ",
			"POST /v1/fleet/explain HTTP/1.1\r\nAuthorization: boss\r\nTransfer-Encoding: chunked": " 408 ",
		} {
			conn := send(head)
			if text, err := io.ReadAll(conn); err != nil || !strings.Contains(string(text), want) {
				t.Errorf("%q: %v %s", head, err, text)
			}
			conn.Close()
		}
		for _, path := range []string{"health", "metrics", "none"} {
			conn := send("GET /" + path + " HTTP/1.1")
			time.Sleep(3 * limit) // the deadline itself is under test
			if text, err := io.ReadAll(conn); err != nil || len(text) > 0 {
				t.Errorf("%s: %v %.100q for who did not read it", path, err, text)
			}
			conn.Close()
		}
	})
}

// TestWeightsOfTwo: concurrent changes of different weights are both applied.
func TestWeightsOfTwo(t *testing.T) {
	s := newStand(t, Config{})
	put := func(body io.Reader) error {
		r, err := http.NewRequestWithContext(t.Context(), "PUT", s.url+"/v1/fleet/weights", body)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		_, err = io.ReadAll(res.Body)
		return err
	}
	first, rest := io.Pipe()
	done := make(chan error)
	go func() { done <- put(first) }()
	io.WriteString(rest, `{"ttft":`) // the pipe's reader has it, so the request has begun
	for range 2 {
		if err := put(strings.NewReader(`{"itl": 0.75}`)); err != nil {
			t.Fatal(err)
		}
	}
	io.WriteString(rest, `7.5}`)
	rest.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if w := s.dispatch.Weights(); w.TTFT != 7.5 || w.ITL != 0.75 {
		t.Errorf("%+v", w)
	}
}
