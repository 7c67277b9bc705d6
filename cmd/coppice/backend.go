package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/backends"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/model"
)

// openBackend is where every command opens what computes.
func openBackend(name backendName, o backends.Options) (engine.Backend, error) {
	return backends.Open(string(name), o)
}

// openCPU opens the cpu backend for commands that measure it.
func openCPU(m *model.Model, o backends.Options) (*cpu.Backend, error) {
	o.Model = m
	b, err := openBackend("cpu", o)
	if err != nil {
		return nil, err
	}
	return b.(*cpu.Backend), nil
}

// backendName is one of backends.Names.
type backendName string

// UnmarshalText takes the name of a backend that there is.
func (b *backendName) UnmarshalText(text []byte) error {
	if !slices.Contains(backends.Names(), string(text)) {
		return fmt.Errorf("%q is no backend, want one of %s", text, strings.Join(backends.Names(), ", "))
	}
	*b = backendName(text)
	return nil
}
