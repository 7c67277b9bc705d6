package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/coppice-llm/coppice/bench/load"
)

// benchServeCmd is coppice bench serve; see bench/load.
type benchServeCmd struct {
	URL      string        `name:"url" default:"http://127.0.0.1:8080" help:"The server: any that is OpenAI-compatible."`
	Endpoint load.Endpoint `default:"completions" help:"completions or chat."`
	Model    string        `help:"Name of the model. Default: the first of /v1/models."`
	APIKey   string        `name:"api-key" env:"COPPICE_API_KEY" placeholder:"KEY" help:"Sent as a bearer token."`

	Dataset         string        `group:"Data set:" enum:"random,shared-prefix,multi-turn,trace,file" default:"multi-turn" help:"random, shared-prefix, multi-turn, trace or file."`
	File            string        `group:"Data set:" placeholder:"PATH" help:"Of trace: a Mooncake trace (JSON lines). Of file: a prompt a line, as text, or in .jsonl as {\"prompt\":\"...\",\"output_tokens\":100}."`
	InputTokens     *int          `group:"Data set:" placeholder:"N" help:"Of random, by default 1024; of each turn of multi-turn, by default 128."`
	OutputTokens    *int          `group:"Data set:" placeholder:"N" help:"Asked for in each request, but not in those of a trace. Default: 128, in multi-turn 64."`
	RangeRatio      float64       `group:"Data set:" default:"0" help:"Spread lengths evenly by this share both ways, from 0 to below 1. random, multi-turn."`
	Groups          int           `group:"Data set:" default:"64" help:"Of shared-prefix: groups, each with a prefix of its own."`
	PromptsPerGroup int           `group:"Data set:" default:"16" help:"Of shared-prefix."`
	PrefixTokens    int           `group:"Data set:" default:"2048" help:"Of shared-prefix: what a group shares."`
	SuffixTokens    int           `group:"Data set:" default:"128" help:"Of shared-prefix: what each request has of its own."`
	Ordered         bool          `group:"Data set:" help:"Of shared-prefix: group after group; else shuffled."`
	Turns           int           `group:"Data set:" default:"4" help:"Of multi-turn: requests of a conversation, which goes on with the server's own answers."`
	SystemTokens    int           `group:"Data set:" default:"512" help:"Of multi-turn: a beginning that all conversations share."`
	Think           time.Duration `group:"Data set:" default:"0s" help:"Of multi-turn: mean time that users take to answer."`
	Speedup         float64       `group:"Data set:" default:"1" help:"Of trace: its time runs so many times as fast."`
	Scale           int           `group:"Data set:" default:"1" help:"Of trace: lengths are divided by this power of two, for small models."`
	PromptForm      string        `group:"Data set:" enum:"auto,ids,words" default:"auto" help:"What made-up prompts are: token ids, words, or ids if the server takes them."`
	Vocab           int           `group:"Data set:" placeholder:"N" help:"Token ids are below it. Default: found out by trial, at most 32000."`

	Concurrency    int           `group:"Load:" placeholder:"N" help:"Closed loop: sessions at a time. Default: 8, if there is no --rate and no trace."`
	Rate           string        `group:"Load:" placeholder:"R" help:"Open loop: sessions per second, or inf for all at once."`
	Burstiness     float64       `group:"Load:" default:"1" help:"Of --rate: shape of the gamma distribution of gaps; 1 is a Poisson process, less has bursts."`
	Ramp           load.Ramp     `group:"Load:" default:"none" help:"Of --rate: none, linear or exponential, from --ramp-from to --rate."`
	RampFrom       float64       `group:"Load:" placeholder:"R" help:"Sessions per second at the beginning of a ramp."`
	MaxConcurrency int           `group:"Load:" placeholder:"N" help:"Open loop: requests that may be out at a time. Default: any number."`
	Requests       int           `group:"Load:" placeholder:"N" help:"Default: the whole data set; 100 where it has no end."`
	Duration       time.Duration `group:"Load:" placeholder:"D" help:"No request begins after it."`
	Warmup         int           `group:"Load:" default:"1" help:"Requests before the run, not counted, with prompts of their own."`
	Seed           uint64        `group:"Load:" default:"0" help:"Of prompts and arrivals."`
	Timeout        time.Duration `group:"Load:" default:"10m" help:"Of a request."`

	Temperature float64 `group:"Requests:" default:"0" help:"Below 0 leaves it to the server."`
	IgnoreEOS   bool    `name:"ignore-eos" group:"Requests:" negatable:"" default:"true" help:"Ask for output of exact length. vLLM, SGLang and coppice know it; --no-ignore-eos for servers that refuse it."`
	Usage       bool    `group:"Requests:" negatable:"" default:"true" help:"Ask for the server's count of tokens; --no-usage counts chunks instead."`
	ExtraBody   string  `group:"Requests:" placeholder:"JSON" help:"An object whose fields go into each request, and replace what is there."`

	Percentiles []float64 `group:"Result:" default:"99" help:"Which to print."`
	Goodput     string    `group:"Result:" placeholder:"LIMITS" help:"Count requests that keep ttft:200ms,tpot:30ms,itl:50ms,e2el:5s or some of them; itl is of every gap."`
	JSON        bool      `name:"json" group:"Result:" help:"Print one JSON object instead of the table, with the keys of vllm bench serve."`
	Save        string    `group:"Result:" placeholder:"PATH" help:"Write that JSON object to a file."`
}

// Help is printed by kong under the summary.
func (*benchServeCmd) Help() string {
	return `Requests go to a running server and their answers are timed as they stream in. Without
flags they are turns of conversations over one system prompt, so the server's prefix
cache has work to do; --dataset random shares nothing. In a
closed loop (--concurrency) a request begins where one has ended; in an open loop
(--rate, or a trace's own times) requests arrive whatever the server does. The
table is the one of vllm bench serve, and its figures are defined as there.

A request whose connection the server closed before it answered anything is sent again,
on another connection.

Examples:
  coppice bench serve --concurrency 16 --requests 200
  coppice bench serve --url http://127.0.0.1:8000 --rate 4 --requests 300 --goodput ttft:500ms,tpot:50ms
  coppice bench serve --dataset shared-prefix --groups 8 --prompts-per-group 32 --prefix-tokens 1024
  coppice bench serve --dataset multi-turn --turns 6 --think 2s --concurrency 32 --endpoint chat
  coppice bench serve --dataset trace --file conversation.jsonl --speedup 4 --scale 16 --duration 5m
  coppice bench serve --dataset file --file prompts.jsonl --rate 10 --burstiness 0.5 --json --save run.json
  coppice bench serve --url http://127.0.0.1:11434 --no-ignore-eos --prompt-form words`
}

// Run is called by kong.
func (c *benchServeCmd) Run(ctx context.Context) error {
	err := c.run(ctx)
	if err != nil && ctx.Err() != nil {
		return ctx.Err() // cancelled requests are not worth an error each
	}
	return err
}

// lengths fills in the default lengths, which depend on the data set. With those of
// multi-turn, four turns with their answers fit into a context of 2,048 tokens.
func (c *benchServeCmd) lengths() {
	input, output := 1024, 128
	if c.Dataset == "multi-turn" {
		input, output = 128, 64
	}
	if c.InputTokens == nil {
		c.InputTokens = &input
	}
	if c.OutputTokens == nil {
		c.OutputTokens = &output
	}
}

// run dials the server, finds the vocabulary, makes the data set, plays it and prints the
// result. A result is printed even if the run was interrupted.
func (c *benchServeCmd) run(ctx context.Context) error {
	c.lengths()
	cfg, err := c.config()
	if err != nil {
		return err
	}
	options, err := c.options()
	if err != nil {
		return err
	}
	client, err := load.Dial(ctx, load.ClientConfig{URL: c.URL, Endpoint: c.Endpoint, Model: c.Model, APIKey: c.APIKey, Options: options})
	if err != nil {
		return err
	}
	defer client.Close()
	v, err := c.vocabulary(ctx, client)
	if err != nil {
		return err
	}
	data, err := c.data(v)
	if err != nil {
		return err
	}
	if cfg.Requests == 0 && cfg.Duration == 0 && data.Sessions() == 0 {
		cfg.Requests = 100
	}
	cfg.WarmupSet = &load.Random{Vocabulary: v, InputTokens: 32, OutputTokens: 8, Seed: c.Seed + 1}
	total := cfg.Requests
	if total == 0 && cfg.Duration == 0 {
		total = data.Sessions() * data.Turns()
	}
	if total == 0 {
		total = -1 // unknown: shows a count instead of a bar
	}
	progress, finish := progressBar(total, "requests")
	result, err := load.Run(ctx, client, data, cfg, progress)
	finish()
	if result == nil {
		return err
	}
	return errors.Join(c.print(result), err, allFailed(result))
}

// config returns the configuration of the load from the flags.
func (c *benchServeCmd) config() (load.Config, error) {
	cfg := load.Config{
		Concurrency: c.Concurrency, MaxConcurrency: c.MaxConcurrency, Requests: c.Requests, Duration: c.Duration,
		Warmup: c.Warmup, Timeout: c.Timeout, Percentiles: c.Percentiles,
	}
	switch {
	case c.Rate != "" && c.Concurrency != 0:
		return cfg, errors.New("--rate is an open loop and --concurrency a closed one: leave one out, or give --max-concurrency with --rate")
	case c.Rate == "" && c.Ramp != load.NoRamp:
		return cfg, errors.New("--ramp needs --rate, where it ends")
	case c.Rate != "":
		rate, err := strconv.ParseFloat(c.Rate, 64)
		if err != nil || !(rate > 0) {
			return cfg, fmt.Errorf("--rate is %q, want more than 0, or inf", c.Rate)
		}
		if !(c.Burstiness > 0) {
			return cfg, fmt.Errorf("--burstiness is %v, want more than 0", c.Burstiness) // load would take 0 as its default
		}
		if math.IsInf(rate, 1) && c.Requests == 0 && c.Duration > 0 {
			return cfg, errors.New("--rate inf needs --requests: all of them come at once")
		}
		cfg.Arrivals = &load.Arrivals{Rate: rate, Burstiness: c.Burstiness, Ramp: c.Ramp, From: c.RampFrom, Seed: c.Seed}
	case c.Dataset == "trace" && c.Concurrency == 0:
		cfg.Timed = true
	case c.Concurrency == 0:
		cfg.Concurrency = 8
	}
	if c.Timeout <= 0 {
		return cfg, fmt.Errorf("--timeout is %v, want more than 0", c.Timeout)
	}
	if c.Goodput != "" {
		cfg.Objectives = &load.Objectives{}
		if err := cfg.Objectives.UnmarshalText([]byte(c.Goodput)); err != nil {
			return cfg, fmt.Errorf("--goodput: %w", err)
		}
	}
	return cfg, nil
}

// options returns the options of each request from the flags.
func (c *benchServeCmd) options() (load.Options, error) {
	o := load.Options{IgnoreEOS: c.IgnoreEOS, NoUsage: !c.Usage}
	if c.Temperature >= 0 {
		o.Temperature = &c.Temperature
	}
	if c.ExtraBody != "" {
		d := json.NewDecoder(bytes.NewReader([]byte(c.ExtraBody)))
		if err := d.Decode(&o.Extra); err != nil || o.Extra == nil || d.More() {
			return o, fmt.Errorf("--extra-body is %q, want a JSON object, as {\"top_k\":1}", c.ExtraBody)
		}
	}
	return o, nil
}

// vocabulary returns the vocabulary of made-up prompts: by flags, or by probing the server.
func (c *benchServeCmd) vocabulary(ctx context.Context, client *load.Client) (load.Vocabulary, error) {
	switch {
	case c.Vocab != 0 && (c.Vocab < 4 || c.Vocab > math.MaxInt32):
		return load.Vocabulary{}, fmt.Errorf("--vocab is %d, want at least 4", c.Vocab)
	case c.PromptForm == "ids" && c.Endpoint == load.Chat:
		return load.Vocabulary{}, errors.New("--prompt-form ids is for --endpoint completions: messages are text")
	case c.Dataset == "file", c.PromptForm == "words", c.Endpoint == load.Chat:
		return load.Vocabulary{}, nil
	case c.Vocab != 0:
		return load.VocabularyOf(c.Vocab), nil
	}
	v, err := client.Probe(ctx, c.Dataset == "multi-turn")
	if err == nil && c.PromptForm == "ids" && v.High == 0 {
		return v, errors.New("--prompt-form ids: the server does not take token ids, or in multi-turn does not name those of its answers: leave it out")
	}
	return v, err
}

// data returns the data set of --dataset, with prompts from vocabulary v.
func (c *benchServeCmd) data(v load.Vocabulary) (load.Dataset, error) {
	if file := c.Dataset == "trace" || c.Dataset == "file"; file != (c.File != "") {
		return nil, fmt.Errorf("--dataset %s: a --file belongs to trace and file, and to no other", c.Dataset)
	}
	switch c.Dataset {
	case "shared-prefix":
		return load.NewSharedPrefix(load.SharedPrefix{
			Vocabulary: v, Groups: c.Groups, PromptsPerGroup: c.PromptsPerGroup, PrefixTokens: c.PrefixTokens,
			SuffixTokens: c.SuffixTokens, OutputTokens: *c.OutputTokens, Ordered: c.Ordered, Seed: c.Seed,
		})
	case "multi-turn":
		d := &load.MultiTurn{
			Vocabulary: v, TurnCount: c.Turns, SystemTokens: c.SystemTokens, InputTokens: *c.InputTokens,
			OutputTokens: *c.OutputTokens, RangeRatio: c.RangeRatio, Think: c.Think, Seed: c.Seed,
		}
		return d, d.Validate()
	case "trace":
		if c.Speedup == 0 || c.Scale == 0 {
			return nil, errors.New("--speedup and --scale: 0 is neither") // load would take 0 as its default
		}
		return load.OpenTrace(c.File, load.TraceConfig{Vocabulary: v, Speedup: c.Speedup, Scale: c.Scale, Seed: c.Seed})
	case "file":
		return load.OpenPrompts(c.File, *c.OutputTokens)
	}
	d := &load.Random{Vocabulary: v, InputTokens: *c.InputTokens, OutputTokens: *c.OutputTokens, RangeRatio: c.RangeRatio, Seed: c.Seed}
	return d, d.Validate()
}

// print saves the result to --save as JSON, and prints it.
func (c *benchServeCmd) print(r *load.Result) error {
	var saved error
	if c.Save != "" {
		var b bytes.Buffer
		if saved = r.WriteJSON(&b); saved == nil {
			saved = os.WriteFile(c.Save, b.Bytes(), 0o644)
		}
		if saved != nil {
			saved = fmt.Errorf("--save: %w", saved)
		}
	}
	if c.JSON {
		return errors.Join(r.WriteJSON(os.Stdout), saved)
	}
	return errors.Join(r.WriteTable(os.Stdout), saved)
}

// allFailed returns an error if all requests failed, so that the command does not succeed
// with figures of nothing.
func allFailed(r *load.Result) error {
	if r.Completed > 0 || r.Failed == 0 {
		return nil
	}
	return fmt.Errorf("all %d requests failed: %v: %s", r.Failed, r.Failures[0].Kind, r.Failures[0].Example)
}
