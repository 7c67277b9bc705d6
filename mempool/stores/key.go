package stores

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/internal/record"
)

// maxKeyFile bounds the file: some dozens of secrets.
const maxKeyFile = 16 << 10

// makeKeyFile is the advice for a file that can't be used.
const makeKeyFile = "make one with: (umask 077; openssl rand -hex 32 > FILE)"

// Sealer encrypts and authenticates KV with secrets, of which the first seals and each opens: so a secret can be
// replaced without losing what it sealed. It is immutable and may be used from any goroutine.
type Sealer = record.Sealer

// NewSealer returns a Sealer with the given secrets, of which it keeps no reference. It fails if there is no secret, or
// one has fewer than 32 bytes or is given twice.
func NewSealer(secrets ...[]byte) (*Sealer, error) { return record.NewSealer(rand.Reader, secrets...) }

// SlotBytes returns the bytes that a full extent of a layout takes in a directory, with its header but not sealed.
func SlotBytes(l mempool.Layout) int {
	f := record.Format{Layout: l}
	return f.SlotBytes()
}

// ReadKey reads a file of secrets, 64 hexadecimal digits a line, of which the first seals what is written and
// each opens what it sealed. Only the owner of the file and its group may have access to it.
func ReadKey(path string) (*Sealer, error) {
	lines, err := readKeyFile(path)
	if err != nil {
		return nil, err
	}
	var secrets [][]byte
	for i, line := range lines {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		secret, err := hex.DecodeString(line)
		if err != nil { // the error would quote the secret
			return nil, fmt.Errorf("%s: line %d is not a secret in hexadecimal; %s", path, i+1, makeKeyFile)
		}
		secrets = append(secrets, secret)
	}
	s, err := NewSealer(secrets...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; %s", path, err, makeKeyFile)
	}
	return s, nil
}

// readKeyFile returns the lines of a file that only its owner and group may read.
func readKeyFile(path string) ([]string, error) {
	file, err := blockio.OpenPlain(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%s does not exist; %s", path, makeKeyFile)
	case err != nil:
		return nil, err
	}
	defer file.Close()
	st, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case st.Mode()&0o007 != 0 && runtime.GOOS != "windows": // Windows has no such bits
		return nil, fmt.Errorf("%s has mode %04o: every user of the machine has access to the secret; chmod 600 it", path, st.Mode().Perm())
	case st.Size() > maxKeyFile:
		return nil, fmt.Errorf("%s has %d bytes, want a secret of 64 hexadecimal digits on each line; %s", path, st.Size(), makeKeyFile)
	}
	b, err := io.ReadAll(io.LimitReader(file, maxKeyFile))
	return strings.Split(string(b), "\n"), err
}
