package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
)

// certify makes a certificate for this machine, and writes it and its key to files.
func certify(t *testing.T) (pool *x509.CertPool, cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool = x509.NewCertPool()
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(parsed)
	return pool, cert, key
}

// TestTLS streams over HTTP/1.1 and over HTTP/2, where each stream can be canceled by itself.
func TestTLS(t *testing.T) {
	pool, cert, key := certify(t)
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) {
			transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, Protocols: &http.Protocols{}}
			transport.Protocols.SetHTTP1(proto == "HTTP/1.1")
			transport.Protocols.SetHTTP2(proto == "HTTP/2.0")
			defer transport.CloseIdleConnections()
			p := serveTLS(t, &http.Client{Transport: transport}, append(slow, "--tls-cert", cert, "--tls-key", key, "--max-running", "2", "--write-timeout", "1s")...)
			var resp *http.Response
			whole := p.complete(text("light", 12), endless, option.WithResponseInto(&resp))
			if resp.Proto != proto {
				t.Errorf("spoken is %s", resp.Proto)
			}
			if s := p.stream(text("light", 12), 1, endless); s.text[0] != whole.Choices[0].Text {
				t.Errorf("streamed %q, whole %q", s.text[0], whole.Choices[0].Text)
			}
			other := p.long(within(t), 10_000)
			p.long(within(t), 10_000).Close()
			p.until("one of two has gone", func() bool { return p.stats(p.client).Running == 1 })
			if !other.Next() {
				t.Errorf("the other stream ended too: %v", other.Err())
			}
			p.waitLonger(other)
			p.quiet(p.client)
		})
	}
}

// waitLonger makes a streamed and a whole request wait in the queue, while others run, for longer than
// the limit on a client that reads nothing. They must not be ended: there is nothing to read yet.
func (p *process) waitLonger(running *ssestream.Stream[openai.Completion]) {
	p.t.Helper()
	ctx := within(p.t)
	second := p.long(ctx, 10_000)
	answers := make(chan error, 2)
	go func() {
		_, err := p.client.Completions.New(ctx, text("whole", 4), endless)
		answers <- err
	}()
	go func() {
		s := p.client.Completions.NewStreaming(ctx, text("streamed", 4), endless)
		defer s.Close()
		for s.Next() {
		}
		answers <- s.Err()
	}()
	p.until("two wait", func() bool { return p.stats(p.client).Waiting == 2 })
	for begun := time.Now(); time.Since(begun) < 1500*time.Millisecond; {
		if !running.Next() || !second.Next() {
			p.t.Fatalf("those that run end: %v, %v", running.Err(), second.Err())
		}
	}
	running.Close()
	second.Close()
	for range 2 {
		if err := <-answers; err != nil {
			p.t.Errorf("one that waited longer: %v", detail(err))
		}
	}
}
