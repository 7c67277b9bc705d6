package main

import (
	"context"
	"fmt"
	"os"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/internal/hub"
)

// pullCmd is coppice pull.
type pullCmd struct {
	Model string `arg:"" help:"owner/name, owner/name:Q4_K_M, owner/name@revision:file.gguf, or the address of one."`
}

// Help is printed by kong under the summary.
func (*pullCmd) Help() string {
	return `From a repository with GGUF files one model is downloaded. The text after the colon is its
path, its quantisation, a part of its name or a pattern with *. Without it the command takes
Q4_K_M, else the next best of 4, 5, 6 and 8 bits. A split file is downloaded with all its parts.
From other repositories config.json, the tokenizer and safetensors are downloaded.

Files go into the cache of Hugging Face's tools (HF_HUB_CACHE, HF_HOME); files that are there
are not downloaded again, and an interrupted download is resumed. Contents are checked by
SHA-256. HF_ENDPOINT sets another hub, HF_TOKEN a token for models that are not public.

Examples:
  coppice pull bartowski/SmolLM2-135M-Instruct-GGUF
  coppice pull Qwen/Qwen3-0.6B-GGUF:Q8_0
  coppice serve --model hf:Qwen/Qwen3-0.6B-GGUF:Q8_0   # pulls it if it is not there`
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
	fmt.Printf("%v: %s at %s\n", m.Ref, decimalBytes(m.Bytes), m.Path)
	if s := model.Inspect(m.Path); s.Err != nil {
		fmt.Fprintf(os.Stderr, "coppice: the download is complete, but the model can't be loaded: %v\n", s.Err)
	} else {
		fmt.Fprintf(os.Stderr, "coppice: try  coppice chat --model %v\n", m.Ref)
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
