// Command coppice serves and routes requests, generates text, makes models and measures.
// It turns flags into configurations and opens the backend; the work itself is done by
// other packages.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/coppice-llm/coppice/radixcache"
)

// cli is the tree of commands.
type cli struct {
	Serve     serveCmd     `cmd:"" help:"Serve a model: an OpenAI-compatible server with a live page."`
	Route     routeCmd     `cmd:"" help:"Route to several servers: an OpenAI-compatible proxy that knows what their caches hold."`
	Generate  generateCmd  `cmd:"" help:"Continue a prompt and print the text as it comes."`
	Chat      chatCmd      `cmd:"" help:"Talk to a model in the terminal, or to a server."`
	Pull      pullCmd      `cmd:"" help:"Download a model from a hub into the cache that Hugging Face's tools share."`
	Models    modelsCmd    `cmd:"" help:"List the models of that cache, and whether they can be loaded."`
	MakeModel makeModelCmd `cmd:"" help:"Write a small generated model, as Hugging Face's directories or GGUF files are."`
	Bench     struct {
		Chat     benchChatCmd  `cmd:"" help:"Play conversations with the cache on and then off, and compare."`
		Radix    radixCmd      `cmd:"" help:"Replay a prefix trace on the radix cache alone, and time it."`
		Index    indexCmd      `cmd:"" help:"Replay a prefix trace on the block index of a fleet, and time it."`
		Policies policiesCmd   `cmd:"" help:"Compare eviction policies with the clairvoyant best."`
		Curve    curveCmd      `cmd:"" help:"Compare the live miss-ratio curve with caches of other sizes."`
		Engine   engineCmd     `cmd:"" help:"Measure the CPU engine alone, beside what the machine reaches."`
		Sched    schedCmd      `cmd:"" help:"Time the scheduler's planning alone."`
		Serving  servingCmd    `cmd:"" help:"Simulate a server under load, by policy."`
		Tiers    benchTiersCmd `cmd:"" help:"Compare tiers of KV memory below the device, with a restart in the middle."`
		Serve    benchServeCmd `cmd:"" help:"Put load on a running server, by HTTP, and time its answers."`
		Peers    benchPeersCmd `cmd:"" help:"Play the same loads on two running servers in turns, and compare."`
	} `cmd:"" help:"Measure."`
	Analyze   analyzeCmd   `cmd:"" help:"Analyse traces."`
	Cache     cacheCmd     `cmd:"" help:"Look at directories of KV on disk, check and prune them."`
	Top       topCmd       `cmd:"" help:"Watch a server in the terminal: pool, requests, prefixes, latencies."`
	GPUCheck  gpucheckCmd  `cmd:"" name:"gpucheck" help:"Check that a GPU computes what it should, and measure it."`
	Calibrate calibrateCmd `cmd:"" help:"Measure the CPU engine's steps and fit a simulated device to them."`
	Sim       struct {
		Worlds simCmd      `cmd:"" default:"withargs" help:"Simulate worlds around the scheduler and check every promise. What sim does without a command."`
		Fleet  simFleetCmd `cmd:"" help:"Simulate fleets behind a router, and compare its policies."`
	} `cmd:"" help:"Simulate: worlds around the scheduler, or fleets."`
	Version versionCmd       `cmd:"" help:"Print the version."`
	About   kong.VersionFlag `name:"version" help:"Print the version."`
}

// versionCmd is coppice version.
type versionCmd struct{}

// Run is called by kong.
func (versionCmd) Run() error {
	fmt.Println("coppice", version())
	return nil
}

const description = `An LLM inference scheduler with a token-level radix KV cache.

Examples:
  coppice serve
  coppice chat --model hf:bartowski/SmolLM2-135M-Instruct-GGUF
  coppice route --worker http://127.0.0.1:8081,http://127.0.0.1:8082
  coppice bench chat
  coppice bench radix --kind tree
  coppice bench serving --loads chat
  coppice cache stat /var/cache/coppice
  coppice calibrate --preset small --out profile.json
  coppice sim --seeds 1000 --faults
  coppice sim fleet
  coppice generate --max-tokens 40 "What is light?"
  coppice make-model ./demo --preset demo
  coppice generate --model ./demo --stats "What is light?"`

// main exits with 0 on success, 1 on an error, exitUsage on a bad command line, exitFailed
// if the node failed, and 130 after an interrupt, as shells do (128 + SIGINT).
func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var c cli
	parser := kong.Must(&c, append(valueMappers(), kong.Name("coppice"), kong.Description(description),
		kong.BindTo(ctx, (*context.Context)(nil)), vars, kong.Vars{"version": "coppice " + version()})...)
	k, err := parser.Parse(helped(os.Args[1:]))
	if wrong := (*kong.ParseError)(nil); errors.As(err, &wrong) {
		fmt.Fprintf(os.Stderr, "coppice: %s\nSee %s --help.\n", sentence(err), meant(wrong))
		os.Exit(exitUsage)
	}
	if err == nil {
		err = bounded(k)
	}
	if err == nil {
		err = k.Run()
	}
	failed := (*nodeFailed)(nil)
	switch {
	case errors.As(err, &failed):
		fmt.Fprintln(os.Stderr, "coppice:", withoutName(err))
		os.Exit(exitFailed)
	case err == nil:
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "coppice: interrupted")
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "coppice:", withoutName(err))
		os.Exit(1)
	}
}

// exitUsage is the exit status for a bad command line.
const exitUsage = 2

// helped returns the arguments with "help serve" replaced by "serve --help".
func helped(args []string) []string {
	if len(args) > 0 && args[0] == "help" {
		return append(slices.Clone(args[1:]), "--help")
	}
	return args
}

// meant returns the command to which a bad command line refers, whose help the error
// message recommends.
func meant(err *kong.ParseError) string {
	if err.Context != nil && err.Context.Selected() != nil {
		return err.Context.Selected().FullPath()
	}
	return "coppice"
}

// vars are the values of ${} in help texts.
var vars = kong.Vars{"evictions": evictions()}

// evictions lists the eviction policies in words: "lru, slru, ... or ...".
func evictions() string {
	var names []string
	for _, p := range radixcache.Policies() {
		names = append(names, p.String())
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
