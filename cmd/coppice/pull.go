package main

import (
	"context"
	"fmt"

	"github.com/coppice-llm/coppice/cmd/internal/hub"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/internal/terminal"
)

// pullCmd is coppice pull.
type pullCmd struct {
	Model string `arg:"" help:"owner/name, owner/name:Q4_K_M, owner/name@revision:file.gguf, or the address of one."`
}

// Run is called by kong.
func (c *pullCmd) Run(ctx context.Context) error {
	h, err := openHub()
	if err != nil {
		return err
	}
	defer h.Close()
	ref, err := hub.ParseRef(c.Model, h.Endpoint())
	if err != nil {
		return err
	}
	m, err := pull(ctx, h, ref)
	if err != nil {
		return err
	}
	fmt.Fprintf(terminal.Out(), "%v: %s at %s\n", m.Ref, decimalBytes(m.Bytes), m.Path)
	if s := model.Inspect(m.Path); s.Err != nil {
		fmt.Fprintf(terminal.Err(), "coppice: the download is complete, but the model can't be loaded: %v\n", s.Err)
	} else {
		fmt.Fprintf(terminal.Err(), "coppice: try  coppice chat --model %v\n", m.Ref)
	}
	return nil
}

// decimalBytes formats a size in decimal units, as hubs and disks do.
func decimalBytes(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1f kB", float64(n)/1e3)
}
