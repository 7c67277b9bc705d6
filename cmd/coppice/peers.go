package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/bench/load"
	"github.com/coppice-llm/coppice/events/eventurl"
)

// benchPeersCmd is coppice bench peers.
type benchPeersCmd struct {
	URL       string        `name:"url" default:"http://127.0.0.1:8080" help:"URL of the server to measure."`
	Against   string        `required:"" placeholder:"URL" help:"URL of the OpenAI-compatible server to compare with."`
	PID       int           `name:"pid" placeholder:"N" help:"Process id of the server at --url, to report its memory (read from /proc)."`
	PeerPID   int           `name:"peer-pid" placeholder:"N" help:"Process id of the server at --against."`
	Model     string        `placeholder:"NAME" help:"Name of the model at --url. Default: the first of its /v1/models."`
	PeerModel string        `name:"peer-model" placeholder:"NAME" help:"Name of the model at --against. Default: the first of its /v1/models."`
	APIKey    string        `name:"api-key" env:"COPPICE_API_KEY" placeholder:"KEY" help:"API key for --url."`
	PeerKey   string        `name:"peer-key" env:"COPPICE_PEER_KEY" placeholder:"KEY" help:"API key for --against."`
	Loads     []string      `default:"alone,prompt,streams,prefix,conversations" help:"Loads: alone (one request at a time), prompt (long prompts, 2 output tokens), streams (8 in parallel), prefix (8 in parallel on two long prefixes), conversations (16 of four turns, over four system prompts)."`
	Rounds    int           `default:"3" min:"1" help:"Runs of each load on each server; figures are medians."`
	Scale     int           `default:"1" min:"1" help:"Divide lengths of prompts and outputs by this, for small models."`
	Seed      uint64        `default:"0" help:"Seed of the prompts. Each round has other prompts, so no server has them cached from an earlier round."`
	Timeout   time.Duration `default:"10m" help:"Time limit of a request."`
	JSON      bool          `name:"json" help:"Print one JSON object instead of the table."`
}

// peerFigures are the figures of one load on one server: medians over the rounds. The tag row has a
// figure's name in tables.
type peerFigures struct {
	TTFTMedianMS float64 `json:"ttft_p50_ms" row:"TTFT p50 ms"`
	TTFTP99MS    float64 `json:"ttft_p99_ms" row:"TTFT p99 ms"`
	ITLMedianMS  float64 `json:"itl_p50_ms" row:"inter-token p50 ms"`
	ITLP99MS     float64 `json:"itl_p99_ms" row:"inter-token p99 ms"`
	TokensPerS   float64 `json:"output_tokens_per_s" row:"output tokens/s"`
	PromptTokens float64 `json:"prompt_tokens" row:"prompt tokens"`
	CachedTokens float64 `json:"cached_tokens" row:"cached tokens"`
	Failed       float64 `json:"failed" row:"failed requests"`
	ResidentMB   float64 `json:"resident_mb,omitempty" row:"resident MB"` // after the load
}

// peerLoad holds the figures of one load on both servers, and their ratios by name.
type peerLoad struct {
	Load   string             `json:"load"`
	URL    peerFigures        `json:"url"`
	Peer   peerFigures        `json:"against"`
	Ratios map[string]float64 `json:"ratios"`
}

// peersTable is the result of coppice bench peers.
type peersTable struct {
	URL     string     `json:"url"`
	Against string     `json:"against"`
	Rounds  int        `json:"rounds"`
	Loads   []peerLoad `json:"loads"`
}

// peer is a server under measurement.
type peer struct {
	client *load.Client
	pid    int
	runs   []peerFigures // of the current load, one for each round
}

// Run is called by kong.
func (c *benchPeersCmd) Run(ctx context.Context) error {
	for _, name := range c.Loads {
		if _, _, err := c.load(name, 0); err != nil {
			return err
		}
	}
	ours, err := c.dial(ctx, c.URL, c.Model, c.APIKey, c.PID)
	if err != nil {
		return fmt.Errorf("--url: %w", err)
	}
	defer ours.client.Close()
	theirs, err := c.dial(ctx, c.Against, c.PeerModel, c.PeerKey, c.PeerPID)
	if err != nil {
		return fmt.Errorf("--against: %w", err)
	}
	defer theirs.client.Close()
	return report(2*c.Rounds*len(c.Loads), "loads", "", c.JSON, false, func(progress func()) (*peersTable, error) {
		t := &peersTable{URL: eventurl.Redact(c.URL), Against: eventurl.Redact(c.Against), Rounds: c.Rounds}
		for _, name := range c.Loads {
			l, err := c.play(ctx, name, ours, theirs, progress)
			if err != nil {
				return nil, err
			}
			t.Loads = append(t.Loads, l)
		}
		return t, nil
	})
}

// dial connects to the server at url, with key as the API key. model is the name of the model to
// ask for; "" means the first model that the server lists. If pid is not 0, dial first checks that
// the memory of that process can be read. Requests are greedy and ignore the end token, so that
// both servers output equally many tokens.
func (c *benchPeersCmd) dial(ctx context.Context, url, model, key string, pid int) (*peer, error) {
	if pid != 0 {
		if _, err := residentBytes(pid); err != nil {
			return nil, fmt.Errorf("process %d: %w", pid, err)
		}
	}
	zero := 0.0
	client, err := load.Dial(ctx, load.ClientConfig{URL: url, Model: model, APIKey: key, Options: load.Options{IgnoreEOS: true, Temperature: &zero}})
	if err != nil {
		return nil, err
	}
	return &peer{client: client, pid: pid}, nil
}

// load returns the data set of a named load for one round, and its configuration. Each round has
// its own random prompts, the same for both servers. An unknown name is an error.
func (c *benchPeersCmd) load(name string, round int) (load.Dataset, load.Config, error) {
	seed := c.Seed + uint64(round)<<20
	tokens := func(n int) int { return max(2, n/c.Scale) }
	cfg := load.Config{Warmup: 1, Timeout: c.Timeout, Percentiles: []float64{99},
		WarmupSet: &load.Random{InputTokens: 8, OutputTokens: 2, Seed: seed + 1}}
	switch name {
	case "alone":
		cfg.Concurrency, cfg.Requests = 1, 4
		return &load.Random{InputTokens: tokens(64), OutputTokens: tokens(64), Seed: seed}, cfg, nil
	case "prompt":
		cfg.Concurrency, cfg.Requests = 1, 4
		return &load.Random{InputTokens: tokens(512), OutputTokens: 2, Seed: seed + 2}, cfg, nil
	case "streams":
		cfg.Concurrency, cfg.Requests = 8, 16
		return &load.Random{InputTokens: tokens(64), OutputTokens: tokens(64), Seed: seed + 3}, cfg, nil
	case "prefix":
		cfg.Concurrency = 8
		d, err := load.NewSharedPrefix(load.SharedPrefix{Groups: 2, PromptsPerGroup: 8, PrefixTokens: tokens(512), SuffixTokens: tokens(32), OutputTokens: tokens(16), Seed: seed + 4})
		return d, cfg, err
	case "conversations":
		cfg.Concurrency = 16
		return &conversations{load.MultiTurn{TurnCount: 4, SystemTokens: tokens(128), Systems: 4, InputTokens: tokens(48), OutputTokens: tokens(32), Seed: seed + 5}}, cfg, nil
	}
	return nil, cfg, fmt.Errorf("--loads: there is no load %q, want alone, prompt, streams, prefix or conversations", name)
}

// conversations is a MultiTurn limited to 16 sessions, so that both servers get the same
// ones however fast they are.
type conversations struct{ load.MultiTurn }

// Sessions returns the number of conversations.
func (*conversations) Sessions() int { return 16 }

// play plays one load in all rounds, on both servers in alternating order, and returns the figures
// of both. advance is called to move the progress bar.
func (c *benchPeersCmd) play(ctx context.Context, name string, ours, theirs *peer, advance func()) (peerLoad, error) {
	ours.runs, theirs.runs = nil, nil
	for round := range c.Rounds {
		order := []*peer{ours, theirs}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, p := range order {
			data, cfg, err := c.load(name, round)
			if err != nil {
				return peerLoad{}, err
			}
			if err := p.run(ctx, data, cfg); err != nil {
				return peerLoad{}, fmt.Errorf("%s: %w", name, err)
			}
			advance()
		}
	}
	l := peerLoad{Load: name, URL: medians(ours.runs), Peer: medians(theirs.runs), Ratios: map[string]float64{}}
	for f, url := range reflect.ValueOf(l.URL).Fields() {
		if a, b := url.Float(), reflect.ValueOf(l.Peer).FieldByIndex(f.Index).Float(); a > 0 && b > 0 {
			l.Ratios[ratioName(f)] = a / b
		}
	}
	return l, nil
}

// run plays data once on this server, as configured by cfg, and appends the figures to p.runs. It
// is an error if all requests fail.
func (p *peer) run(ctx context.Context, data load.Dataset, cfg load.Config) error {
	r, err := load.Run(ctx, p.client, data, cfg, nil)
	if err != nil {
		return err
	}
	if err := allFailed(r); err != nil {
		return err
	}
	ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
	f := peerFigures{TTFTMedianMS: ms(r.TTFT.Median), TTFTP99MS: ms(r.TTFT.Percentiles[0]), ITLMedianMS: ms(r.ITL.Median), ITLP99MS: ms(r.ITL.Percentiles[0]),
		TokensPerS: float64(r.OutputTokens) / r.Duration.Seconds(), PromptTokens: float64(r.InputTokens), CachedTokens: float64(r.CachedTokens), Failed: float64(r.Failed)}
	if p.pid != 0 {
		bytes, err := residentBytes(p.pid)
		if err != nil {
			return fmt.Errorf("process %d: %w", p.pid, err)
		}
		f.ResidentMB = float64(bytes) / 1e6
	}
	p.runs = append(p.runs, f)
	return nil
}

// ratioName returns the name of a figure's ratio.
func ratioName(f reflect.StructField) string { return strings.ReplaceAll(f.Tag.Get("row"), " ", "_") }

// medians returns the median of each figure; for an even number of runs, the lower of the
// two in the middle.
func medians(runs []peerFigures) (m peerFigures) {
	for f, median := range reflect.ValueOf(&m).Elem().Fields() {
		var values []float64
		for i := range runs {
			values = append(values, reflect.ValueOf(runs[i]).FieldByIndex(f.Index).Float())
		}
		slices.Sort(values)
		median.SetFloat(values[(len(values)-1)/2])
	}
	return m
}

// residentBytes returns the resident memory of a process, from Linux's /proc.
func residentBytes(pid int) (int64, error) {
	if n := numberAfter(os.DirFS("/proc"), fmt.Sprintf("%d/status", pid), "VmRSS:"); n > 0 {
		return n << 10, nil
	}
	return 0, errors.New("there is no such process, or its status has no VmRSS")
}

// Rows implements bench.Report with all figures, except for those that both servers lack.
func (t *peersTable) Rows() (rows [][]string, legend string) {
	rows = append(rows, []string{"load", "figure", "--url", "--against", "ratio"})
	for _, l := range t.Loads {
		name := l.Load
		for f, url := range reflect.ValueOf(l.URL).Fields() {
			a, b, ratio := url.Float(), reflect.ValueOf(l.Peer).FieldByIndex(f.Index).Float(), "-"
			if a == 0 && b == 0 {
				continue
			}
			if r, ok := l.Ratios[ratioName(f)]; ok {
				ratio = fmt.Sprintf("%.2f", r)
			}
			rows = append(rows, []string{name, f.Tag.Get("row"), fmt.Sprintf("%.1f", a), fmt.Sprintf("%.1f", b), ratio})
			name = ""
		}
	}
	return rows, ""
}
