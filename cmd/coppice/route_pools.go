package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/gateway"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/router"
)

// poolFlags make the router choose a pool of workers before a worker.
type poolFlags struct {
	Pools        string         `type:"path" placeholder:"FILE" help:"JSON file of pools, in the format of NVIDIA Dynamo's global router, see above. The router first chooses a pool by prompt length and targets, then a worker. It reloads the file when it changes."`
	Buckets      int            `placeholder:"N" min:"1" max:"64" help:"Divide all workers into N pools, at most 64, and choose one of these first, see above."`
	Stage        router.Staging `default:"turn" help:"How a bucket is chosen: turn (in rotation), or prefix (by the hash of a prompt's beginning, so that equal beginnings share a bucket)."`
	PrefixBlocks int            `name:"prefix-blocks" default:"4" min:"1" max:"1<<20" help:"Blocks of that beginning; it must be longer than the part that all prompts share. Also for --policy prefix-hash."`
	DefaultTTFT  *float64       `name:"default-ttft-ms" placeholder:"MS" min:"0" max:"1e12" help:"With --pools: target of time to first token for requests without one. Default: the middle of the grid."`
	DefaultITL   *float64       `name:"default-itl-ms" placeholder:"MS" min:"0" max:"1e12" help:"With --pools: target of time between tokens for requests without one. Default: the middle of the grid."`

	poolsText []byte // contents of the file
}

// check reports combinations of flags that are not allowed.
func (f *poolFlags) check(s *settings) error {
	var faults bounds.Faults
	faults.If(f.Pools != "" && f.Buckets != 0, "--pools and --buckets exclude each other: give one of them")
	faults.If(s.isSet("stage") && f.Buckets == 0, "--stage needs --buckets, the number of buckets")
	faults.If((f.DefaultTTFT != nil || f.DefaultITL != nil) && f.Pools == "", "--default-ttft-ms and --default-itl-ms need --pools: only pools have targets")
	return faults.Err()
}

// maxPoolsFile bounds a file of pools, in bytes.
const maxPoolsFile = 16 << 20

// apply sets the fields of the configuration given by the flags.
func (f *poolFlags) apply(cfg *gateway.Config, log *zap.Logger) error {
	cfg.Buckets, cfg.Stage, cfg.Router.PrefixBlocks = f.Buckets, f.Stage, f.PrefixBlocks
	if f.Pools == "" {
		return nil
	}
	var err error
	if f.poolsText, err = f.read(); err == nil {
		cfg.Pools, err = f.parse(f.poolsText, log)
	}
	return err
}

// read returns the contents of the file of pools.
func (f *poolFlags) read() ([]byte, error) { return readFlagFile("--pools", f.Pools, maxPoolsFile) }

// parse parses the contents of the file of pools and logs its warnings.
func (f *poolFlags) parse(data []byte, log *zap.Logger) (*gateway.PoolsConfig, error) {
	p, warnings, err := gateway.ParsePools(bytes.TrimPrefix(data, []byte("\ufeff")))
	for _, w := range warnings {
		log.Warn("pools' file", zap.String("file", f.Pools), zap.String("says", w))
	}
	if err == gateway.ErrDisaggregated {
		return nil, fmt.Errorf(`--pools %s: its "mode" is disagg, which is also the default: this router does not split a request between prefill and decode workers; want "mode": "agg", with agg_pool_selection_strategy`, f.Pools)
	}
	if err != nil {
		return nil, fmt.Errorf("--pools %s: %s; want the JSON of Dynamo's global router, an example is in coppice route --help", f.Pools, wrongPools(data, err))
	}
	p.DefaultTTFT, p.DefaultITL = f.DefaultTTFT, f.DefaultITL
	return p, nil
}

// wrongPools describes the fault of a file of pools; if it is not JSON, with the line.
func wrongPools(data []byte, err error) string {
	syntax := (*json.SyntaxError)(nil)
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return "the file is empty"
	case errors.As(err, &syntax):
		line := 1 + bytes.Count(data[:min(int(syntax.Offset), len(data))], []byte("\n"))
		return fmt.Sprintf("line %d is not JSON: %v", line, syntax)
	}
	return strings.TrimPrefix(strings.TrimPrefix(err.Error(), "global: configuration: "), "json: ")
}

// watchedPools returns the watch of the file of pools, which sets g's pools after a change.
func (f *poolFlags) watchedPools(g *gateway.Gateway, log *zap.Logger) *watched {
	return &watched{what: "pools' file", path: f.Pools, has: f.poolsText,
		read: f.read,
		take: func(data []byte) (zap.Field, error) {
			p, err := f.parse(data, log)
			if err != nil {
				return zap.Skip(), err
			}
			return zap.Strings("pools", p.Aggregated.Names), g.SetPools(p)
		}}
}
