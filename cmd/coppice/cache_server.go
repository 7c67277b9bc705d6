package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/coppice-llm/coppice/internal/terminal"
	"github.com/coppice-llm/coppice/server/view"
)

// cacheStatCmd is coppice cache stat: of directories, or of the tiers of a running server.
type cacheStatCmd struct {
	Dir    string `arg:"" optional:"" type:"path" help:"Directory of --kv-disk or --kv-share, or one fingerprint's directory in it."`
	URL    string `name:"url" placeholder:"http://127.0.0.1:8080" help:"Print what the tiers of a running server hold, and how often they failed, by reason. Instead of a directory."`
	APIKey string `name:"api-key" env:"COPPICE_API_KEY" placeholder:"KEY" help:"API key of that server, if it needs one."`
	JSON   bool   `name:"json" help:"Print JSON."`

	KVKey sealFile `name:"kv-key" placeholder:"FILE" help:"File of secrets, as of coppice serve, to open sealed KV."`
}

// Run is called by kong.
func (c *cacheStatCmd) Run(ctx context.Context) error {
	switch {
	case c.Dir == "" && c.URL == "":
		return errors.New("give the directory that holds the KV, or the --url of a server")
	case c.Dir != "" && c.URL != "":
		return errors.New("give a directory or --url, not both")
	case c.URL != "":
		return c.server(ctx)
	}
	_, err := (&cacheDir{Dir: c.Dir, JSON: c.JSON, KVKey: c.KVKey}).stats(false, "")
	return err
}

// server prints the figures of a server's tiers below the device.
func (c *cacheStatCmd) server(ctx context.Context) error {
	from, err := newServerClient(c.URL, c.APIKey)
	if err != nil {
		return err
	}
	var figures struct{ Tiers []view.Tier }
	noSchema := 0
	if err := from.read(ctx, "/v1/cache/stats", &figures, &noSchema, 0); err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(terminal.Out()).Encode(figures.Tiers)
	}
	if len(figures.Tiers) == 0 {
		fmt.Fprintln(terminal.Out(), "the server has no tier below the device; its log names one that could not be opened")
	}
	for i := range figures.Tiers {
		printTier(terminal.Out(), &figures.Tiers[i])
	}
	return nil
}

func printTier(w io.Writer, t *view.Tier) {
	state := "works"
	if t.Failing > 0 {
		state = "is failing; the server's log has the cause"
	}
	fmt.Fprintf(w, "%s tier %s\n", topClean(t.Name), state)
	fmt.Fprintf(w, "  %d extents, %d of %d bytes, %d read, %d written\n", t.Extents, t.HeldBytes, t.CapacityBytes, t.Reads, t.Writes)
	fmt.Fprintf(w, "  %d moves failed, %d lost, %d late, %d busy, %d full, %d foreign, %d damaged, %d I/O errors\n",
		t.Errors, t.Lost, t.Late, t.Busy, t.Full, t.Foreign, t.Damaged, t.IOErrors)
}
