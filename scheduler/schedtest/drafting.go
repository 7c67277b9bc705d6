package schedtest

import (
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// drawDrafts turns drafts on in two of three worlds.
func (w *setup) drawDrafts(rng stream) {
	w.cfg.Speculate = scheduler.SpeculateOff
	if !rng.one(3) {
		w.speculate(rng)
	}
}

// speculate turns drafts on. Where steps take no time, no number of drafts is worth its time, so the
// configuration gives a number.
func (w *setup) speculate(rng stream) {
	w.cfg.Speculate = pick(rng, 1, 2, 4, 16, scheduler.SpeculateAuto)
	if w.profile == "" {
		w.cfg.Speculate = pick(rng, scheduler.Speculate(1), 3, 16)
	}
	w.device.MaxDrafts = pick(rng, 0, 0, 1, 3, 8)
}

// guess gives a request a Prediction in most worlds with drafts: its output with some errors.
func (w *world) guess(req *scheduler.Request) {
	rng := w.guesses
	if w.cfg.Speculate == scheduler.SpeculateOff {
		return
	}
	req.Speculate = pick(rng, scheduler.SpeculateDefault, scheduler.SpeculateDefault, scheduler.SpeculateDefault, scheduler.SpeculateOff, scheduler.SpeculateAuto, 2)
	errors := pick(rng, 2, 3, 5, 20)
	if rng.one(4) || !w.sound(req) {
		return
	}
	params := req.Sampling
	params.Seed = engine.BranchSeed(params.Seed, 0)
	for _, t := range w.oracle.Expect(req.Prompt, params, outputLimit(req, &w.cfg, &w.info), newOutline(req, w.cfg.Vocabulary).mask) {
		switch {
		case !rng.one(errors):
			req.Prediction = append(req.Prediction, t)
		case rng.one(2): // one token replaces another
			req.Prediction = append(req.Prediction, kv.Token(rng.IntN(w.info.Vocab)))
		case rng.one(2): // or is one too many, or left out
			req.Prediction = append(req.Prediction, t, t)
		}
	}
}

// sound reports whether a request has an output that can be computed before the scheduler accepts it.
func (w *world) sound(req *scheduler.Request) bool {
	n := outputLimit(req, &w.cfg, &w.info)
	return len(req.Prompt) > 0 && req.Sampling.Validate(w.info.Vocab) == nil && n > 0 && n <= 4*w.setup.largest &&
		!slices.ContainsFunc(req.Prompt, func(t kv.Token) bool { return int(t) >= w.info.Vocab })
}
