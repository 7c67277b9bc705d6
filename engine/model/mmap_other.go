//go:build !unix

package model

import (
	"io"
	"os"
)

// mapping is the read-only contents of a file.
type mapping struct{ data []byte }

// openMapping reads the first size bytes of f into memory.
func openMapping(f *os.File, size int) (*mapping, error) {
	data := make([]byte, size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, err
	}
	return &mapping{data}, nil
}

func (m *mapping) close() error {
	m.data = nil
	return nil
}
