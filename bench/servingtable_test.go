package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/scheduler"
)

func TestCompareServing(t *testing.T) {
	notUnderTags(t)
	cfg := CompareServingConfig{
		Base:   ServingConfig{Requests: 150, Seed: 2, Scheduler: scheduler.Config{MaxRunning: 32}},
		Loads:  []ServingLoad{ServeFewShot, ServeTenants},
		Levels: []ServingLevel{{"low", 0.3}, {"flood", 2}},
		Variants: []ServingVariant{
			{"fcfs", scheduler.Config{}}, {"fair", scheduler.Config{Policy: scheduler.DLPM, Quantum: 100}},
		},
	}
	calls := 0
	table, err := CompareServing(context.Background(), cfg, func() { calls++ })
	if err != nil {
		t.Fatal(err)
	}
	if calls != cfg.Steps() || calls != 2*(1+2*2) {
		t.Errorf("progress was called %d times, Steps says %d", calls, cfg.Steps())
	}
	for _, cells := range table.Loads {
		for j, l := range cells.Levels {
			if l.Rate != cfg.Levels[j].Share*cells.Capacity || len(l.Results) != 2 || l.Results[1].Policy != "fair" {
				t.Fatalf("%s, %s: %+v", cells.Load, l.Level, l)
			}
		}
		low, flood := cells.Levels[0].Results[0], cells.Levels[1].Results[0]
		if low.RequestsPerS > 0.4*cells.Capacity || flood.RequestsPerS < 0.6*cells.Capacity || flood.TTFTp50 < 2*low.TTFTp50 || flood.TTFTp99 < low.TTFTp99 {
			t.Errorf("%s: capacity %v, at the low level %+v, at twice the capacity %+v", cells.Load, cells.Capacity, low, flood)
		}
		if fair := cells.Levels[1].Results[1]; fair.Jain <= flood.Jain || fair.ServedDifference >= flood.ServedDifference {
			t.Errorf("%s: DLPM is not fairer than FCFS: %+v against %+v", cells.Load, fair, flood)
		}
	}
	again, err := CompareServing(context.Background(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	var first, second, human, asJSON bytes.Buffer
	WriteMarkdown(&first, table)
	WriteMarkdown(&second, again)
	if first.String() != second.String() || strings.Count(first.String(), "\n| ") != 2*2*2 {
		t.Errorf("two tables:\n%s\n%s", &first, &second)
	}
	WriteTable(&human, table)
	if !strings.Contains(human.String(), "the capacity is") || !strings.Contains(human.String(), "flood (") {
		t.Errorf("printed %s", &human)
	}
	WriteJSON(&asJSON, table)
	var read ServingTable
	if err := json.Unmarshal(asJSON.Bytes(), &read); err != nil || len(read.Loads) != 2 || read.Loads[1].Levels[1].Results[1].Tenants[0].Tenant != "flood" {
		t.Errorf("%v: printed %s", err, &asJSON)
	}
}

func TestCompareServingRefuses(t *testing.T) {
	for _, c := range []struct {
		cfg  CompareServingConfig
		want string
	}{
		{CompareServingConfig{Levels: []ServingLevel{{"none", 0}}}, "level none has a share of 0"},
		{CompareServingConfig{Loads: []ServingLoad{}}, "nothing to compare"},
		{CompareServingConfig{Base: ServingConfig{Requests: -1}}, "Requests is -1"},
		{CompareServingConfig{Base: ServingConfig{Requests: 10, Scheduler: scheduler.Config{Aging: -1}}}, "Aging is -1"},
	} {
		if _, err := CompareServing(context.Background(), c.cfg, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v does not mention %q", c.cfg, err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := CompareServing(ctx, CompareServingConfig{Base: ServingConfig{Requests: 10}}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
