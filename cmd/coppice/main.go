// Command coppice serves and routes requests, generates text, makes models and measures.
// It turns flags into configurations and opens the backend; the work itself is done by
// other packages.
package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/coppice-llm/coppice/engine/backends"
	"github.com/coppice-llm/coppice/grammar/toolcall"
	"github.com/coppice-llm/coppice/internal/terminal"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler"
)

// cli is the tree of commands.
type cli struct {
	Serve     serveCmd     `cmd:"" help:"Serve a model over an OpenAI-compatible HTTP API, with a live page."`
	Route     routeCmd     `cmd:"" help:"Route requests to several servers: an OpenAI-compatible proxy that tracks their caches."`
	Generate  generateCmd  `cmd:"" help:"Continue a prompt and stream the text to the terminal."`
	Chat      chatCmd      `cmd:"" help:"Chat with a local model or a server, in the terminal."`
	Pull      pullCmd      `cmd:"" help:"Download a model from a hub into the Hugging Face cache."`
	Models    modelsCmd    `cmd:"" help:"List the models in the Hugging Face cache."`
	MakeModel makeModelCmd `cmd:"" help:"Write a small generated model: a Hugging Face directory or a GGUF file."`
	Bench     struct {
		Chat      benchChatCmd      `cmd:"" help:"Play conversations with the cache on and then off, and compare."`
		Radix     radixCmd          `cmd:"" help:"Replay a prefix trace on the radix cache alone, and time it."`
		Index     indexCmd          `cmd:"" help:"Replay a prefix trace on the block index of a fleet, and time it."`
		Fleet     benchFleetCmd     `cmd:"" help:"Measure a gateway in front of a large fleet: CPU of a choice, memory of the index."`
		Policies  policiesCmd       `cmd:"" help:"Compare eviction policies with the clairvoyant best."`
		Curve     curveCmd          `cmd:"" help:"Compare the live miss-ratio curve with real caches of other sizes."`
		Engine    engineCmd         `cmd:"" help:"Measure the CPU engine alone, and compare it with the machine's limits."`
		Sched     schedCmd          `cmd:"" help:"Time the scheduler's planning alone."`
		Serving   servingCmd        `cmd:"" help:"Simulate a server under load, by policy."`
		Tiers     benchTiersCmd     `cmd:"" help:"Compare KV in device memory only with KV in host memory and on disk."`
		Sessions  benchSessionsCmd  `cmd:"" help:"Fork, park and resume sessions of a Go program, and time it."`
		Serve     benchServeCmd     `cmd:"" help:"Send load to a running server and time its answers."`
		Speculate benchSpeculateCmd `cmd:"" help:"Compare decoding with drafts off and on."`
		Peers     benchPeersCmd     `cmd:"" help:"Send the same loads to two running servers in turns, and compare."`
	} `cmd:"" help:"Benchmark servers, caches, the engine and the scheduler."`
	Analyze   analyzeCmd   `cmd:"" help:"Analyse traces of prompts."`
	Cache     cacheCmd     `cmd:"" help:"Look into the cache of a running server; list, verify and prune directories of KV."`
	Top       topCmd       `cmd:"" help:"Watch a server in the terminal: pool, requests, prefixes, latencies."`
	GPUCheck  gpucheckCmd  `cmd:"" name:"gpucheck" help:"Check that a GPU computes correctly, and measure its speed."`
	Calibrate calibrateCmd `cmd:"" help:"Measure steps of the CPU engine and fit a simulated device to them."`
	Sim       struct {
		Worlds simCmd      `cmd:"" default:"withargs" help:"Run the scheduler in random simulated worlds and check its invariants. The default of coppice sim."`
		Fleet  simFleetCmd `cmd:"" help:"Simulate fleets behind a router and compare routing policies."`
	} `cmd:"" help:"Simulate the scheduler or a fleet."`
	Doctor  doctorCmd        `cmd:"" help:"Check this machine: CPU, memory, GPU, directories, limits and ports."`
	Version versionCmd       `cmd:"" help:"Print the version."`
	About   kong.VersionFlag `name:"version" help:"Print the version."`
}

// versionCmd is coppice version.
type versionCmd struct{}

// Run is called by kong.
func (versionCmd) Run() error {
	fmt.Fprintln(terminal.Out(), "coppice", version())
	return nil
}

// main exits with 0 on success, 1 on an error, exitUsage on a bad command line, exitFailed
// if the node failed, and 130 after an interrupt, as shells do (128 + SIGINT).
func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var c cli
	parser := kong.Must(&c, append(valueMappers(), kong.Name("coppice"), kong.Description(helpOf("coppice")),
		kong.BindTo(ctx, (*context.Context)(nil)), vars, kong.Vars{"version": "coppice " + version()})...)
	for _, n := range parser.Model.Leaves(false) {
		n.Detail = helpOf(n.Path())
	}
	k, err := parser.Parse(helped(os.Args[1:]))
	if wrong := (*kong.ParseError)(nil); errors.As(err, &wrong) {
		fmt.Fprintf(terminal.Err(), "coppice: %s\nSee %s --help.\n", sentence(err), meant(wrong))
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
		fmt.Fprintln(terminal.Err(), "coppice:", withoutName(err))
		os.Exit(exitFailed)
	case err == nil:
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		fmt.Fprintln(terminal.Err(), "coppice: interrupted")
		os.Exit(130)
	default:
		fmt.Fprintln(terminal.Err(), "coppice:", withoutName(err))
		os.Exit(1)
	}
}

// exitUsage is the exit status for a bad command line.
const exitUsage = 2

// helpFiles has the texts that --help prints under the summary of a command: help/bench-serve.txt is
// that of coppice bench serve.
//
//go:embed help/*.txt
var helpFiles embed.FS

// helpOf returns the text of a command; "" if it has none.
func helpOf(command string) string {
	text, _ := helpFiles.ReadFile("help/" + strings.ReplaceAll(command, " ", "-") + ".txt")
	return strings.TrimSuffix(string(text), "\n")
}

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

// vars are the values of ${} in the tags of flags.
var vars = kong.Vars{
	"evictions": either(texts(radixcache.Policies(), radixcache.Policy.String)),
	"policies":  either(texts(scheduler.Policies(), scheduler.Policy.About)),
	"backends":  strings.Join(backends.Names(), ","),

	"toolforms":      strings.Join(texts(toolcall.Forms(), func(f *toolcall.Form) string { return f.Name }), ","),
	"abouttoolforms": either(texts(toolcall.Forms(), func(f *toolcall.Form) string { return f.Name + " (" + f.About + ")" })),

	// of askFlags:
	"server": "http://127.0.0.1:8080", "form": "", "asked": "URL of the server.", "key": "of the server, if it needs one.",
}

// texts returns a text of each value.
func texts[T any](values []T, text func(T) string) []string {
	var all []string
	for _, v := range values {
		all = append(all, text(v))
	}
	return all
}
