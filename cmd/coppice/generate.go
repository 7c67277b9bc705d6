package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
)

type generateCmd struct {
	nodeFlags
	Prompt      string  `arg:"" help:"Text to continue."`
	MaxTokens   int     `name:"max-tokens" default:"64" help:"Most tokens to generate."`
	Temperature float32 `default:"0" help:"0 takes the best token always; 1 draws as the model says."`
	TopP        float32 `name:"top-p" default:"1" help:"Draw among the best tokens that make up this probability."`
	TopK        int32   `name:"top-k" default:"0" help:"Draw among so many best tokens; 0 for all."`
	Seed        uint64  `default:"0" help:"Same seed, same text."`
	Stats       bool    `help:"Print the scheduler's figures at the end."`
}

// Help is printed by kong under the summary.
func (*generateCmd) Help() string {
	return `Examples:
  coppice generate "What is light?"
  coppice generate --model ./llama --temperature 0.7 --seed 7 "What is light?"`
}

// Run is called by kong.
func (c *generateCmd) Run(ctx context.Context) (err error) {
	dir, remove, err := c.modelDir()
	if err != nil {
		return err
	}
	defer remove()
	if c.Model == "" {
		fmt.Fprintln(os.Stderr, "coppice: no --model given: the generated one's weights are random, its text means nothing")
	}
	node, err := c.open(dir, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	for piece, err := range node.Generate(ctx, coppice.Request{
		Prompt: c.Prompt, MaxTokens: c.MaxTokens,
		Sampling: engine.SamplingParams{Temperature: c.Temperature, TopP: c.TopP, TopK: c.TopK, Seed: c.Seed},
	}) {
		if err != nil {
			return err
		}
		fmt.Print(piece.Text)
		if e := piece.Ending; e != nil {
			fmt.Println()
			fmt.Fprintf(os.Stderr, "coppice: %d prompt and %d output tokens, ended by %v, first token after %v\n",
				e.PromptTokens, e.OutputTokens, e.Reason, e.FirstToken.Round(1e5))
		}
	}
	if c.Stats {
		st, err := node.Stats(ctx)
		if err != nil {
			return err
		}
		fmt.Fprint(os.Stderr, st.Scheduler)
	}
	return nil
}
