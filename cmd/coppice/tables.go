package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/coppice-llm/coppice/bench"
)

// loadTraces generates a trace of each kind and reads Mooncake's recorded ones.
func loadTraces(requests int, seed uint64, mooncake []string) ([]bench.NamedTrace, error) {
	var traces []bench.NamedTrace
	for _, kind := range []bench.TraceKind{bench.TraceChat, bench.TraceFewShot, bench.TraceTree, bench.TraceUnique} {
		t, err := bench.GenerateTrace(bench.TraceConfig{Kind: kind, Requests: requests, Seed: seed})
		if err != nil {
			return nil, err
		}
		traces = append(traces, bench.NamedTrace{Name: kind.String(), Trace: t})
	}
	for _, path := range mooncake {
		t, err := bench.OpenMooncake(path)
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
		traces = append(traces, bench.NamedTrace{Name: name, Trace: t, Scale: bench.MooncakeScale})
	}
	return traces, nil
}

// table is what comparisons end in.
type table interface {
	WriteJSON(io.Writer) error
	WriteTable(io.Writer) error
	WriteMarkdown(io.Writer) error
}

// printTable prints it for people, unless a flag asks for another form.
func printTable(t table, asJSON, asMarkdown bool) error {
	switch {
	case asJSON:
		return t.WriteJSON(os.Stdout)
	case asMarkdown:
		return t.WriteMarkdown(os.Stdout)
	}
	return t.WriteTable(os.Stdout)
}
