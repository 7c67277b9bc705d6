package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/internal/terminal"
)

// benchChatCmd is coppice bench chat; see bench.Chat.
type benchChatCmd struct {
	nodeFlags
	backendFlags
	bench.ChatConfig
	Seed uint64 `default:"1" help:"Seed of the conversations."`
	JSON bool   `name:"json" help:"Print one JSON object instead of the table."`
}

// Run is called by kong.
func (c *benchChatCmd) Run(ctx context.Context) error {
	dir, remove, err := c.modelDir(ctx)
	if err != nil {
		return err
	}
	defer remove()
	c.ChatConfig.Seed = c.Seed
	load, err := bench.NewChat(c.ChatConfig)
	if err != nil {
		return err
	}
	if !c.JSON {
		fmt.Fprintf(terminal.Out(), "%d requests in conversations of up to %d turns about Newton's Opticks, %d users at a time,\n"+
			"first with the cache on, then off.\n\n", load.Requests(), c.Turns, c.Clients)
	}
	comparison, why := c.compare(ctx, load, dir)
	if comparison == nil {
		return why
	}
	return errors.Join(printReport(comparison, c.JSON, false), why)
}

// compare plays the load with the cache on and off. If the cache changes an answer or
// leaks a page, it returns an error together with the comparison.
func (c *benchChatCmd) compare(ctx context.Context, load *bench.Chat, dir string) (*bench.Comparison, error) {
	on, onRun, err := c.play(ctx, load, dir, "cache on ", false)
	if err != nil {
		return nil, err
	}
	off, offRun, err := c.play(ctx, load, dir, "cache off", true)
	if err != nil {
		return nil, err
	}
	comparison := &bench.Comparison{On: on, Off: off, Digest: onRun.Digest()}
	comparison.Identical, err = bench.Identical(onRun, offRun)
	if leaked := on.LeakedPages + off.LeakedPages; leaked != 0 {
		err = errors.Join(err, fmt.Errorf("%d pages leaked", leaked))
	}
	return comparison, err
}

// play runs the load once on a new node with the model in dir, and returns its figures and its
// answers. label names the run in the progress bar.
func (c *benchChatCmd) play(ctx context.Context, load *bench.Chat, dir, label string, disableCache bool) (s bench.Summary, run *bench.Run, err error) {
	node, err := c.nodeFlags.open(dir, &c.backendFlags, disableCache)
	if err != nil {
		return s, nil, err
	}
	progress, finish := progressBar(load.Requests(), label)
	run, err = load.Play(ctx, node.Node, progress)
	finish()
	if err = errors.Join(err, node.Close()); err != nil {
		return s, nil, err
	}
	st, err := node.Stats(context.Background()) // a closed node answers at once
	if err != nil {
		return s, nil, err
	}
	s, err = bench.Summarise(run, st)
	return s, run, err
}
