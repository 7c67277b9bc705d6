package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// credentials returns the transport security of --listen.
func (c *listenFlags) credentials() (grpc.ServerOption, error) {
	switch {
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return nil, errors.New("--tls-cert and --tls-key belong together")
	case c.SelfSigned && c.TLSCert != "":
		return nil, errors.New("--self-signed excludes --tls-cert")
	case c.SelfSigned:
		pair, err := selfSigned(time.Now())
		if err != nil {
			return nil, err
		}
		return grpc.Creds(credentials.NewServerTLSFromCert(&pair)), nil
	case c.TLSCert == "":
		return grpc.Creds(insecure.NewCredentials()), nil
	}
	files := certificate{cert: c.TLSCert, key: c.TLSKey}
	if _, err := files.get(nil); err != nil {
		return nil, fmt.Errorf("--tls-cert and --tls-key: %w", err)
	}
	return grpc.Creds(credentials.NewTLS(&tls.Config{GetCertificate: files.get})), nil
}

// certificate is a certificate in files, which are read again when they change.
type certificate struct {
	cert, key string

	mu   sync.Mutex
	pair *tls.Certificate
	of   [2]time.Time // when the files of pair were changed
}

// get returns the certificate. While the files are broken, as in the middle of a change, it is the last one.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var of [2]time.Time
	for i, path := range []string{c.cert, c.key} {
		if s, err := os.Stat(path); err == nil {
			of[i] = s.ModTime()
		}
	}
	if c.pair != nil && of == c.of {
		return c.pair, nil
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		if c.pair != nil {
			return c.pair, nil
		}
		return nil, err
	}
	c.pair, c.of = &pair, of
	return c.pair, nil
}

// selfSigned makes a certificate for ten years. It protects against listeners, not against impostors.
func selfSigned(now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return tls.Certificate{}, err
	}
	of := x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "coppice-epp"}, DNSNames: []string{"coppice-epp"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, &of, &of, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
