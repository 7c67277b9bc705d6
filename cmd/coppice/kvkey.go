package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool"
)

// sealFile is a flag for a file of secrets that seal KV.
type sealFile struct {
	path   string
	sealer *mempool.Sealer
}

// maxSealFile bounds the file: some dozens of secrets.
const maxSealFile = 16 << 10

// makeSealFile is the advice for a file that can't be used.
const makeSealFile = "make one with: (umask 077; openssl rand -hex 32 > FILE)"

// UnmarshalText reads the file with this name.
func (f *sealFile) UnmarshalText(text []byte) error {
	path := string(text)
	lines, err := readSealFile(path)
	if err != nil {
		return err
	}
	var secrets [][]byte
	for i, line := range lines {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		secret, err := hex.DecodeString(line)
		if err != nil { // the error would quote the secret
			return fmt.Errorf("%s: line %d is not a secret in hexadecimal; %s", path, i+1, makeSealFile)
		}
		secrets = append(secrets, secret)
	}
	s, err := mempool.NewSealer(rand.Reader, secrets...)
	if err != nil {
		return fmt.Errorf("%s: %w; %s", path, err, makeSealFile)
	}
	*f = sealFile{path, s}
	return nil
}

// readSealFile returns the lines of a file that only its owner and group may read.
func readSealFile(path string) ([]string, error) {
	file, err := blockio.OpenPlain(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%s does not exist; %s", path, makeSealFile)
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
	case st.Size() > maxSealFile:
		return nil, fmt.Errorf("%s has %d bytes, want a secret of 64 hexadecimal digits on each line; %s", path, st.Size(), makeSealFile)
	}
	b, err := io.ReadAll(io.LimitReader(file, maxSealFile))
	return strings.Split(string(b), "\n"), err
}

func (f sealFile) String() string { return f.path }
