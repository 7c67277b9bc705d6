package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/coppice-llm/coppice/bench/load"
	"github.com/coppice-llm/coppice/internal/terminal"
)

// benchServeCmd is coppice bench serve; see bench/load.
type benchServeCmd struct {
	URL      string        `name:"url" default:"http://127.0.0.1:8080" help:"URL of an OpenAI-compatible server."`
	Endpoint load.Endpoint `default:"completions" help:"API to use: completions or chat."`
	Model    string        `help:"Name of the model. Default: the first of /v1/models."`
	APIKey   string        `name:"api-key" env:"COPPICE_API_KEY" placeholder:"KEY" help:"API key, sent as a bearer token."`

	Dataset         string           `group:"Data set:" enum:"random,shared-prefix,multi-turn,agents,trace,file" default:"multi-turn" help:"Prompts: random, shared-prefix, multi-turn, agents, trace or file."`
	File            string           `group:"Data set:" placeholder:"PATH" help:"For trace: a recorded trace (JSON lines). For file: one prompt per line, as text, or in a .jsonl file as {\"prompt\":\"...\",\"output_tokens\":100}."`
	TraceFormat     load.TraceFormat `group:"Data set:" default:"auto" help:"For trace: mooncake (requests with times), agentx (sessions of agents, as blocks), messages (requests with their messages), or auto, by the first line."`
	InputTokens     int              `group:"Data set:" placeholder:"N" min:"1" help:"Prompt length. Default: 1024 for random, 128 per turn for multi-turn. For agents: longest prompt before --scale, by default 140000. For a trace of agentx: longest prompt before --scale; longer ones are left out."`
	OutputTokens    int              `group:"Data set:" placeholder:"N" min:"1" help:"Output length of each request; a trace has its own. Default: 128, and 64 for multi-turn. For agents: median before --scale, by default 150."`
	RangeRatio      float64          `group:"Data set:" default:"0" help:"For random and multi-turn: spread lengths evenly by this share up and down, from 0 to below 1."`
	Groups          int              `group:"Data set:" default:"64" help:"For shared-prefix: number of groups; each has its own prefix."`
	PromptsPerGroup int              `group:"Data set:" default:"16" help:"For shared-prefix: prompts in each group."`
	PrefixTokens    int              `group:"Data set:" default:"2048" help:"For shared-prefix: tokens that a group shares."`
	SuffixTokens    int              `group:"Data set:" default:"128" help:"For shared-prefix: tokens of each request after the prefix."`
	Ordered         bool             `group:"Data set:" help:"For shared-prefix: send group after group. Default: shuffled."`
	Turns           int              `group:"Data set:" placeholder:"N" min:"1" help:"For multi-turn: requests per conversation, by default 4. For agents: median per session, by default 40. Each contains the server's earlier answers."`
	SystemTokens    int              `group:"Data set:" default:"512" help:"For multi-turn: length of the beginning that all conversations share."`
	Think           *time.Duration   `group:"Data set:" placeholder:"D" help:"For multi-turn and agents: mean pause between an answer and the next turn. Default: 0s for multi-turn, 1s for agents."`
	MaxThink        time.Duration    `group:"Data set:" default:"60s" min:"0s" help:"For traces of agentx and messages: longest pause within a session, after --speedup. 0s: as recorded."`
	Speedup         float64          `group:"Data set:" default:"1" above:"0" max:"inf" help:"For trace: play it faster by this factor."`
	Scale           int              `group:"Data set:" placeholder:"N" min:"1" help:"For agents and trace: divide lengths by this number, for small models; for trace a power of two. Default: 128 for agents, so that prompts fit into a context of 2,048 tokens, and 1 for trace."`
	SessionNames    bool             `group:"Data set:" negatable:"" default:"true" help:"For agents, and for traces of agentx and messages: name the session of each request, by the header x-session-id and the field prompt_cache_key. Use --no-session-names for servers that refuse the field."`
	PromptForm      string           `group:"Data set:" enum:"auto,ids,words" default:"auto" help:"Form of generated prompts: ids (token ids), words, or auto (ids if the server accepts them)."`
	Vocab           int              `group:"Data set:" placeholder:"N" min:"4" max:"2147483647" help:"Size of the vocabulary: token ids are below it. Default: found by trial, at most 32000."`

	Concurrency    int           `group:"Load:" placeholder:"N" help:"Closed loop: parallel sessions, without their sub-agents. Default: 8 without --rate and without a trace of mooncake."`
	Rate           string        `group:"Load:" placeholder:"R" help:"Open loop: sessions per second, or inf for all at once."`
	Burstiness     float64       `group:"Load:" default:"1" above:"0" max:"inf" help:"With --rate: shape of the gamma distribution of gaps. 1 is a Poisson process; below 1 there are bursts."`
	Ramp           load.Ramp     `group:"Load:" default:"none" help:"With --rate: growth from --ramp-from to --rate: none, linear or exponential."`
	RampFrom       float64       `group:"Load:" placeholder:"R" help:"Sessions per second at the start of a ramp."`
	MaxConcurrency int           `group:"Load:" placeholder:"N" help:"Open loop: most requests in flight. Default: no limit."`
	Requests       int           `group:"Load:" placeholder:"N" help:"Number of requests. Default: the whole data set, or 100 if it has no end, and 400 for agents."`
	Duration       time.Duration `group:"Load:" placeholder:"D" help:"Start no request after this time."`
	Warmup         int           `group:"Load:" default:"1" help:"Requests before the run, with other prompts; they are not counted."`
	Seed           uint64        `group:"Load:" default:"0" help:"Seed of prompts and arrivals."`
	Timeout        time.Duration `group:"Load:" default:"10m" above:"0s" help:"Time limit of a request."`

	Temperature float64 `group:"Requests:" default:"0" help:"Sampling temperature. Below 0: the server's default."`
	IgnoreEOS   bool    `name:"ignore-eos" group:"Requests:" negatable:"" default:"true" help:"Ask for output of exact length (ignore_eos). vLLM, SGLang and coppice know this field; use --no-ignore-eos for servers that refuse it."`
	Usage       bool    `group:"Requests:" negatable:"" default:"true" help:"Ask the server for its count of tokens. --no-usage counts chunks instead."`
	ExtraBody   string  `group:"Requests:" placeholder:"JSON" help:"JSON object whose fields are added to each request, or replace its fields."`

	Percentiles []float64 `group:"Result:" default:"99" help:"Percentiles to print."`
	Goodput     string    `group:"Result:" placeholder:"LIMITS" help:"Count requests within these limits, one or more of ttft:200ms,tpot:30ms,itl:50ms,e2el:5s. itl applies to every gap."`
	JSON        bool      `name:"json" group:"Result:" help:"Print a JSON object with the keys of vllm bench serve instead of the table."`
	Save        string    `group:"Result:" placeholder:"PATH" help:"Write that JSON object to a file."`
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
	input, output, turns, scale, think := 1024, 128, 4, 1, time.Duration(0)
	switch c.Dataset {
	case "trace":
		input = 0 // no limit
	case "multi-turn":
		input, output = 128, 64
	case "agents":
		input, output, turns, scale, think = 140_000, 150, 40, 128, time.Second
	}
	c.InputTokens, c.OutputTokens = cmp.Or(c.InputTokens, input), cmp.Or(c.OutputTokens, output)
	c.Turns, c.Scale = cmp.Or(c.Turns, turns), cmp.Or(c.Scale, scale)
	if c.Think == nil {
		c.Think = &think
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
		if c.Dataset == "agents" {
			cfg.Requests = 400
		}
	}
	cfg.WarmupSet = &load.Random{Vocabulary: v, InputTokens: 32, OutputTokens: 8, Seed: c.Seed + 1}
	total := cfg.Requests
	if total == 0 && cfg.Duration == 0 {
		_, most := data.Requests()
		if total = data.Sessions() * most; c.Dataset == "trace" {
			total = data.(load.Recording).Total()
		}
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
	switch file := c.Dataset == "trace" || c.Dataset == "file"; {
	case file && c.File == "":
		return cfg, fmt.Errorf("--dataset %s needs a --file", c.Dataset)
	case !file && c.File != "":
		return cfg, fmt.Errorf("--file is for --dataset trace or file; --dataset %s makes its prompts", c.Dataset)
	case c.Dataset == "trace" && c.TraceFormat == load.AnyFormat:
		format, err := load.FormatOf(c.File)
		if err != nil {
			return cfg, err
		}
		c.TraceFormat = format
	}
	switch {
	case c.Dataset == "trace" && c.TraceFormat == load.Messages && c.Endpoint != load.Chat:
		return cfg, errors.New("a trace of messages needs --endpoint chat")
	case c.Rate != "" && c.Concurrency != 0:
		return cfg, errors.New("--rate (open loop) and --concurrency (closed loop) exclude each other: give one, or --rate with --max-concurrency")
	case c.Rate == "" && c.Ramp != load.NoRamp:
		return cfg, errors.New("--ramp needs --rate, the rate at its end")
	case c.Rate != "":
		rate, err := strconv.ParseFloat(c.Rate, 64)
		if err != nil || !(rate > 0) {
			return cfg, fmt.Errorf("--rate is %q, want more than 0, or inf", c.Rate)
		}
		if math.IsInf(rate, 1) && c.Requests == 0 && c.Duration > 0 {
			return cfg, errors.New("--rate inf needs --requests, the number of requests to send at once")
		}
		cfg.Arrivals = &load.Arrivals{Rate: rate, Burstiness: c.Burstiness, Ramp: c.Ramp, From: c.RampFrom, Seed: c.Seed}
	case c.Dataset == "trace" && c.TraceFormat.Timed() && c.Concurrency == 0:
		cfg.Timed = true
	case c.Concurrency == 0:
		cfg.Concurrency = 8
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
	o := load.Options{IgnoreEOS: c.IgnoreEOS, NoUsage: !c.Usage, NoSessionNames: !c.SessionNames}
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
	case c.PromptForm == "ids" && c.Endpoint == load.Chat:
		return load.Vocabulary{}, errors.New("--prompt-form ids is for --endpoint completions: messages are text")
	case c.Dataset == "file", c.PromptForm == "words", c.Endpoint == load.Chat:
		return load.Vocabulary{}, nil
	case c.Vocab != 0:
		return load.VocabularyOf(c.Vocab), nil
	}
	v, err := client.Probe(ctx, c.Dataset == "multi-turn" || c.Dataset == "agents")
	if err == nil && c.PromptForm == "ids" && v.High == 0 {
		return v, errors.New("--prompt-form ids: the server does not accept token ids, or does not return those of its answers, which conversations need: omit --prompt-form")
	}
	return v, err
}

// data returns the data set of --dataset, with prompts from vocabulary v.
func (c *benchServeCmd) data(v load.Vocabulary) (load.Dataset, error) {
	switch c.Dataset {
	case "shared-prefix":
		return load.NewSharedPrefix(load.SharedPrefix{
			Vocabulary: v, Groups: c.Groups, PromptsPerGroup: c.PromptsPerGroup, PrefixTokens: c.PrefixTokens,
			SuffixTokens: c.SuffixTokens, OutputTokens: c.OutputTokens, Ordered: c.Ordered, Seed: c.Seed,
		})
	case "multi-turn":
		d := &load.MultiTurn{
			Vocabulary: v, TurnCount: c.Turns, SystemTokens: c.SystemTokens, InputTokens: c.InputTokens,
			OutputTokens: c.OutputTokens, RangeRatio: c.RangeRatio, Think: *c.Think, Seed: c.Seed,
		}
		return d, d.Validate()
	case "agents":
		d := &load.Agents{
			Vocabulary: v, TurnCount: c.Turns, InputTokens: c.InputTokens, OutputTokens: c.OutputTokens, Scale: c.Scale, Think: *c.Think, Seed: c.Seed,
		}
		return d, d.Validate()
	case "trace":
		return load.OpenTrace(c.File, c.TraceFormat, load.TraceConfig{
			Vocabulary: v, Speedup: c.Speedup, Scale: c.Scale, Seed: c.Seed, MaxThink: c.MaxThink, InputTokens: c.InputTokens, OutputTokens: c.OutputTokens,
		})
	case "file":
		return load.OpenPrompts(c.File, c.OutputTokens)
	}
	d := &load.Random{Vocabulary: v, InputTokens: c.InputTokens, OutputTokens: c.OutputTokens, RangeRatio: c.RangeRatio, Seed: c.Seed}
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
		return errors.Join(r.WriteJSON(terminal.Out()), saved)
	}
	return errors.Join(r.WriteTable(terminal.Out()), saved)
}

// allFailed returns an error if all requests failed, so that the command does not succeed
// with figures of nothing.
func allFailed(r *load.Result) error {
	if r.Completed > 0 || r.Failed == 0 {
		return nil
	}
	return fmt.Errorf("all %d requests failed: %v: %s", r.Failed, r.Failures[0].Kind, r.Failures[0].Example)
}
