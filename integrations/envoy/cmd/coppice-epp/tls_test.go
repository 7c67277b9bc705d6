package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/gateway"
)

// trusting accepts any certificate, as gateways of the Inference Extension do.
func trusting() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

func workersOf(urls ...string) (all []gateway.WorkerConfig) {
	for _, url := range urls {
		all = append(all, gateway.WorkerConfig{URL: url})
	}
	return all
}

// TestCertificateIsReadAgain replaces the files of a certificate: the new one counts once it is whole.
func TestCertificateIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	c := certificate{cert: filepath.Join(dir, "cert"), key: filepath.Join(dir, "key")}
	if _, err := c.get(nil); err == nil {
		t.Error("a certificate without files")
	}
	changes := time.Now().Add(-time.Hour)
	write := func(path string, block *pem.Block) {
		changes = changes.Add(time.Second)
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, changes, changes); err != nil {
			t.Fatal(err)
		}
	}
	replace := func() (cert []byte, key func()) {
		pair, err := selfSigned(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		write(c.cert, &pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
		return pair.Certificate[0], func() { write(c.key, &pem.Block{Type: "PRIVATE KEY", Bytes: der}) }
	}
	is := func(what string, want []byte) {
		t.Helper()
		if got, err := c.get(nil); err != nil || string(got.Certificate[0]) != string(want) {
			t.Errorf("%s: %v, another certificate", what, err)
		}
	}
	first, key := replace()
	key()
	is("the first", first)
	is("again", first)
	second, key := replace()
	is("half of the second", first)
	key()
	is("the second", second)
}
