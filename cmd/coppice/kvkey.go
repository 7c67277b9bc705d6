package main

import (
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/stores"
)

// sealFile is a flag for a file of secrets that seal KV.
type sealFile struct {
	path   string
	sealer *mempool.Sealer
}

// UnmarshalText reads the file with this name.
func (f *sealFile) UnmarshalText(text []byte) error {
	s, err := stores.ReadKey(string(text))
	if err == nil {
		*f = sealFile{string(text), s}
	}
	return err
}

func (f sealFile) String() string { return f.path }
