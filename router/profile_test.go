package router

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/kv"
)

// TestDefaultProfileIsTheH100 takes the coefficients from differences of the
// simulated device's steps.
func TestDefaultProfileIsTheH100(t *testing.T) {
	device, err := sim.ProfileByName("h100")
	if err != nil {
		t.Fatal(err)
	}
	step := func(rows ...engine.Row) float64 {
		return device.Step(&engine.Batch{Rows: rows}, 0).Seconds()
	}
	prompt := func(n int) engine.Row { return engine.Row{Tokens: make([]kv.Token, n)} }
	decodes := func(n, context int) []engine.Row {
		rows := make([]engine.Row, n)
		for i := range rows {
			rows[i] = engine.Row{Tokens: make([]kv.Token, 1), Start: int32(context), Sample: true}
		}
		return rows
	}
	a, b := step(prompt(4096)), step(prompt(8192))
	pairs := func(n float64) float64 { return n * (n + 1) / 2 }
	// a = step + token·n + pair·n(n+1)/2; the step is the rest at n = 0.
	c := step(prompt(16384))
	pair := ((c - b) - 2*(b-a)) / ((pairs(16384) - pairs(8192)) - 2*(pairs(8192)-pairs(4096)))
	token := (b - a - pair*(pairs(8192)-pairs(4096))) / 4096
	got := DefaultProfile()
	for _, f := range []struct {
		name        string
		got, device float64
	}{
		{"Token", got.Token, token},
		{"Pair", got.Pair, pair},
		{"KV", got.KV, (step(decodes(1, 100001)...) - step(decodes(1, 1)...)) / 100000},
		{"Row", got.Row, (step(decodes(9, 1)...)-step(decodes(1, 1)...))/8 - 2*got.KV},
		{"Step", got.Step, step(decodes(1, 1)...)},
	} {
		if math.Abs(f.got-f.device) > 0.1*f.device {
			t.Errorf("%s is %.3g, the device has %.3g", f.name, f.got, f.device)
		}
	}
}

func TestProfileIsValidated(t *testing.T) {
	for _, p := range []Profile{{Step: -1}, {Token: math.NaN()}, {Pair: math.Inf(1)}, {Row: 1001}, {KV: -1}, {HostBlock: -1}, {DiskBlock: -1}, {Block: -1}, {Prompt: 1001}} {
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "in seconds: ") {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if err := (Profile{}).Validate(); err != nil {
		t.Error(err)
	}
}

// TestCurrentStep: a new request waits for the rest of the worker's current step,
// for half a step if the last news is older than a step takes, and not at all if the
// worker is idle.
func TestCurrentStep(t *testing.T) {
	weights := Weights{TTFT: 1}
	r := newRouter(t, Config{Policy: CostLatency, Profile: Profile{Step: 0.01}, Weights: weights}, WorkerSpec{})
	ttft := func(now time.Duration, want float64) {
		t.Helper()
		e, err := r.Explain(now, &Request{PromptTokens: 100})
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Candidates[0].Cost; math.Abs(got-want) > 1e-9 {
			t.Errorf("at %v the first token takes %v s, want %v", now, got, want)
		}
	}
	ttft(0, 0.01)
	const milli = time.Millisecond
	d := selected(t, r, 5*milli, Request{PromptTokens: 50})
	ttft(7*milli, 0.008+2*0.01) // the step that began with the request, that of its prompt, and its own
	r.Progress(100*milli, d.Reservation, 0, 1)
	ttft(103*milli, 0.007+0.01)
	ttft(200*milli, 0.005+0.01)
	r.Release(300*milli, d.Reservation)
	ttft(301*milli, 0.01)
}

// TestSharedBlocksAreReadOnce computes costs by hand of a device on which rows that share
// blocks read them once, and any prompt adds something to a step.
func TestSharedBlocksAreReadOnce(t *testing.T) {
	p := Profile{Block: 1e-3, Prompt: 0.01}
	r := newRouter(t, Config{Policy: CostLatency, Profile: p, Weights: Weights{TTFT: 1, ITL: 1}}, WorkerSpec{})
	d := selected(t, r, 0, Request{PromptTokens: 96, Hashes: hashes(1, 2, 3, 4, 5, 6)})
	r.Progress(0, d.Reservation, 0, 1) // 7 blocks
	costs := func(now time.Duration, want ...float64) {
		t.Helper()
		e, err := r.Explain(now, &Request{PromptTokens: 160, Hashes: hashes(1, 2, 3, 4, 5, 6, 11, 12, 13, 14), ExpectedOutput: 32})
		if err != nil {
			t.Fatal(err)
		}
		for i, got := range e.Candidates[0].Terms {
			if math.Abs(got-want[i]) > 1e-9 {
				t.Errorf("%s is %v, want %v", termNames[e.Policy][i], got, want[i])
			}
		}
	}
	// 4 more blocks and 1 of output. Half of the current step is left.
	costs(second, 0.007/2+0.007+0.01, 32*0.012, 0.01+16*0.005, 0)
	selected(t, r, second, Request{PromptTokens: 160, Hashes: hashes(1, 2, 3, 4, 5, 6, 11, 12, 13, 14)})
	// 11 blocks, half of them for the one decoding row; nothing is added but output.
	costs(2*second, (0.0055+0.01)/2+2*(0.0055+0.01), 32*0.012, 0.01+2*16*0.001, 0)
}
