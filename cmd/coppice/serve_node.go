package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/backends"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/events/bundle"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/fleet"
	"github.com/coppice-llm/coppice/local"
	"github.com/coppice-llm/coppice/radixcache/missratio"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/server"
)

// served is an opened model with its node.
type served struct {
	node      *coppice.Node
	names     []string      // names accepted in requests; answers use the first
	generated bool          // the weights are random
	speaks    bool          // the model is the one that speaks, as none was given or found
	device    string        // name of the simulated device; "" for a real one
	profile   *card.Profile // cost model of the simulated device
	created   time.Time
	about     server.About
	stored    int            // most bytes of stored responses
	bundle    *bundle.Bundle // tokenizer and template for routers; nil if not a worker of a fleet

	sampling      engine.SamplingParams // defaults for requests
	tokenizerInfo []byte
}

// findModel returns the path of --model, else of a model of the cache, else of one in a temporary
// directory, which remove deletes.
func (c *serveCmd) findModel(ctx context.Context) (dir string, remove func(), err error) {
	if c.Model == "" && (c.Backend == "cpu" || c.Backend == "cuda") {
		if c.cached = cachedModel(); c.cached != nil {
			return c.cached.Path, func() {}, nil
		}
	}
	return c.modelDir(ctx, c.Backend)
}

// open reads the model at dir and starts a node. It first sets the flags whose defaults depend on
// the device or on other flags.
func (c *serveCmd) open(dir string, log *zap.Logger) (*served, error) {
	s := &served{names: c.ModelName, speaks: c.cached == nil && c.speaks(c.Backend)}
	if len(s.names) == 0 {
		s.names = []string{modelName(dir)}
	}
	at := dir
	if !model.IsGGUF(dir) {
		at = filepath.Join(dir, "config.json")
	}
	if st, err := os.Stat(at); err == nil {
		s.created = st.ModTime()
	}
	s.about = describe(dir)
	if err := s.readWords(dir, len(c.Publish) > 0); err != nil {
		return nil, err
	}
	if !c.settings.isSet("step-tokens") {
		if c.Backend == "sim" || c.Backend == "cuda" {
			c.StepTokens = 2048 // the default fits a small processor and is too small for a large device
		}
		if c.ITLTarget > 0 {
			c.StepTokens = max(c.StepTokens, 640) // room for a prompt of 512 tokens alone; beside decodes the target bounds the step
		}
		c.StepTokens = max(c.StepTokens, 2*c.MaxRunning) // leaves half of a step for prompts
	}
	if c.APIKeyFile != "" && !c.settings.isSet("policy") {
		c.Policy = scheduler.DLPM // fair shares: no tenant waits for the long prompts of another
	}
	opened, err := local.Open(dir, local.Options{
		Node:    coppice.Config{MaxRequests: c.MaxRequests, Pooling: c.pooling(), Tiers: c.tiers(), Log: nodeLog(log.Named("node"))},
		Neutral: c.SamplingDefaults == "neutral",
		Backend: func(m *model.Model, cfg *coppice.Config) (engine.Backend, error) {
			backend, err := c.backend(m, s, log)
			if err != nil {
				return nil, err
			}
			info := backend.Info()
			cfg.Scheduler = c.scheduler(info)
			plan := c.memoryFlags.apply(info.HostBytes+int64(c.KVHost), int64(c.MaxBody), c.storedBytes(), log)
			s.stored = cmp.Or(int(plan.Stored), int(c.ResponsesBytes))
			cfg.Memory, cfg.FormatBytes, cfg.TextBytes = coppice.NewMemory(plan.Requests), int(plan.Formats), plan.textBytes()
			return backend, nil
		},
	})
	if err != nil {
		if _, bad := model.ReadDefaults(dir); bad != nil && c.SamplingDefaults != "neutral" {
			err = fmt.Errorf("%w\n(--sampling-defaults neutral ignores these recommendations)", err)
		}
		return nil, err
	}
	if opened.NoTemplate != nil {
		log.Warn("no chat template: /v1/chat/completions is refused", zap.Error(opened.NoTemplate))
	}
	if opened.NoPooling != nil {
		log.Warn("embeddings take the last token: --pooling", zap.Error(opened.NoPooling))
	}
	s.node, s.generated, s.sampling = opened.Node, opened.Generated, opened.Sampling
	return s, nil
}

// storedBytes returns the most memory that stored responses may take.
func (c *serveCmd) storedBytes() int64 {
	if c.ResponsesDir != "" {
		return 0
	}
	return int64(c.ResponsesBytes)
}

// pooling returns the pooling of --pooling, NoPooling for auto.
func (c *serveCmd) pooling() scheduler.Pooling {
	return map[string]scheduler.Pooling{"last": scheduler.LastToken, "mean": scheduler.MeanTokens}[c.Pooling]
}

// scheduler returns the scheduler's configuration from the flags, for this device.
func (c *serveCmd) scheduler(info engine.Info) scheduler.Config {
	cfg := scheduler.Config{
		Policy: c.Policy, StepTokens: c.StepTokens, MaxInflight: c.Inflight, Speculate: c.Speculate, MaxRunning: c.MaxRunning, PinnedTokens: c.PinnedTokens,
		DefaultMaxTokens: c.defaultMaxTokens(info), MaxSamples: min(maxChoices, c.MaxRequests),
		MaxQueued: c.MaxQueued, Displace: c.Displace, PreemptThreshold: c.PreemptThreshold, PromptFloor: c.PromptFloor, ITLTarget: c.ITLTarget,
		Tenant: c.settings.tenant, Tenants: c.settings.tenants, Quantum: c.Quantum, DebtAge: cmp.Or(c.DebtAge, -1),
	}
	if !c.settings.isSet("pinned-tokens") {
		cfg.PinnedTokens = info.NumPages * info.PageTokens / 8
	}
	c.cacheFlags.set(&cfg, c.settings.quotas)
	if c.Curve {
		cfg.Curve = missratio.New(missratio.DefaultSamples)
	}
	if len(c.Publish) > 0 {
		cfg.Events, cfg.BlockTokens = true, c.BlockTokens
	}
	return cfg
}

// describe returns what the files of the model at dir say about it.
func describe(dir string) server.About {
	s := model.Inspect(dir)
	a := server.About{Format: "safetensors", Architecture: s.Architecture, Weights: s.Weights, Parameters: s.Parameters, Bytes: s.Bytes}
	if model.IsGGUF(dir) {
		a.Format = "gguf"
	}
	return a
}

// readWords prepares the answer of /tokenizer_info and, for a worker of a fleet, the bundle
// for routers.
func (s *served) readWords(dir string, worker bool) (err error) {
	if s.tokenizerInfo, err = tokenizerInfo(dir); err == nil && worker {
		s.bundle, err = fleet.Bundle(dir)
	}
	return err
}

// backend opens the device selected by the flags for the model m. For a simulated device it sets
// the fields device and profile of s.
func (c *serveCmd) backend(m *model.Model, s *served, log *zap.Logger) (engine.Backend, error) {
	o := backends.Options{
		Model: m, PageTokens: c.PageTokens, KVTokens: c.KVTokens, KVBytes: int64(c.KVMemory), KVType: c.KVType, Threads: c.Threads,
		MaxSlots: c.MaxRunning, MaxRows: c.MaxRunning, MaxTokens: max(512, c.StepTokens), GPU: c.gpu(), Log: nodeLog(log),
	}
	if (c.Backend == "sim" || c.Backend == "cuda") && !c.settings.isSet("kv-tokens") {
		o.KVTokens = 0 // as many as fit into the device's memory
	}
	if c.Backend == "sim" {
		profile, err := openProfile(c.Profile)
		if err != nil {
			return nil, err
		}
		s.device = profile.Device.Name + " with " + profile.Model.Name
		s.profile = profileOf(&profile)
		o.Sim = backends.Simulation{Profile: profile, Sanitize: sim.Boundary, Logits: c.SimLogits, Faults: sim.Faults{Batch: poison(c.SimPoison)}}
		o.MaxTokens = max(8192, c.StepTokens)
	}
	b, err := openBackend(c.Backend, o)
	if errors.Is(err, backends.ErrMemory) {
		return nil, fmt.Errorf("--kv-memory is %v: %w", c.KVMemory, err)
	}
	return b, err
}

// defaultMaxTokens returns the output limit, in tokens, of chat requests without one: that
// of --default-max-tokens, else the model's context. Without the flag a simulated device gets
// 0, the scheduler's own default, because it hardly ever samples an end token.
func (c *serveCmd) defaultMaxTokens(info engine.Info) int {
	if c.DefaultMaxTokens == 0 && c.Backend != "sim" {
		return info.MaxPositions
	}
	return c.DefaultMaxTokens
}

// tokenizerInfo makes the answer of /tokenizer_info for the model at path.
func tokenizerInfo(path string) ([]byte, error) {
	if model.IsGGUF(path) {
		words, err := model.GGUFWords(path)
		if err != nil {
			return nil, err
		}
		return server.TokenizerInfo(words["tokenizer_config.json"], "")
	}
	var files [2][]byte
	for i, name := range []string{"tokenizer_config.json", "chat_template.jinja"} {
		var err error
		if files[i], err = os.ReadFile(filepath.Join(path, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return server.TokenizerInfo(files[0], string(files[1]))
}
