package predict

import (
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine"
)

// TestCorrect checks that a few steps correct factors that are wrong by 2 to 10, that an
// outlier changes predictions little, and a lasting change fully.
func TestCorrect(t *testing.T) {
	cost := engine.StepCost{Step: 2e-3, Row: 1e-3, Token: 1e-3}
	decode, small, large := engine.StepShape{Rows: 10}, engine.StepShape{Rows: 1, PromptTokens: 3}, engine.StepShape{Rows: 2, PromptTokens: 500}
	for _, truth := range []engine.StepCost{cost, {Step: 0.5e-3, Row: 2e-3, Token: 0.1e-3}, {Step: 8e-3, Row: 0.5e-3, Token: 6e-3}} {
		st := NewSteps(cost, time.Second, false)
		see := func(shape engine.StepShape, slow float64) float64 {
			took := slow * (truth.Fixed(&shape) + truth.Prompts(&shape))
			parts, sum := st.predict(&shape)
			st.correct(&parts, sum, took)
			return sum / took
		}
		for range 3 {
			see(small, 1)
			see(large, 1)
			see(decode, 1)
		}
		both := engine.StepShape{Rows: 10, PromptTokens: 60}
		if r := see(both, 1); r < 0.8 || r > 1.25 {
			t.Errorf("%+v: after nine steps a mixed one is predicted at %.2f of its time", truth, r)
		}
		for range 20 {
			see(decode, 1)
		}
		see(decode, 1000)
		if r := see(decode, 1); r < 0.95 || r > 1.25 {
			t.Errorf("%+v: after an outlier a step is predicted at %.2f of its time", truth, r)
		}
		for range 60 {
			see(decode, 2)
		}
		if r := see(decode, 2); r < 0.95 || r > 1.05 {
			t.Errorf("%+v: after many slow steps one is predicted at %.2f of its time", truth, r)
		}
	}
}

// TestDraftsOfASlowMachine checks that drafts are expected to cost as much as decode rows turn out to, before any
// was verified.
func TestDraftsOfASlowMachine(t *testing.T) {
	cost := engine.StepCost{Step: 4e-3, Row: 0.7e-3, Token: 0.7e-3, Draft: 0.7e-3}
	const slower = 4
	st := NewSteps(cost, 0, true)
	for range 10 {
		st.Learn(&engine.StepShape{Rows: 16}, 16, 16, int64(slower*1e9*(cost.Step+16*cost.Row)))
	}
	if _, draft := st.Drafts(16, 0); draft < 0.8*slower*cost.Draft || draft > 1.2*slower*cost.Draft {
		t.Errorf("a draft is expected to take %.2f ms, want about %.2f", 1e3*draft, 1e3*slower*cost.Draft)
	}
}
