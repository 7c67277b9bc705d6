package actors

import (
	"fmt"
	"math"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/scheduler"
)

// Embed asks for an embedding of a prompt in place of output.
type Embed struct {
	// Pooling makes one vector of the states at the prompt's tokens. Default: no embedding.
	Pooling scheduler.Pooling
	// Dimensions keeps that many of the first values, for models that are trained for it (Matryoshka,
	// arXiv:2205.13147). Default: all, as many as Info.HiddenSize says.
	Dimensions int
	// Raw leaves the vector as it is. Otherwise its length is 1, measured after the cut to Dimensions.
	Raw bool
}

// check refuses an Embed that the backend can't answer. The scheduler checks Pooling.
func (e *Embed) check(info *engine.Info) error {
	switch {
	case e.Pooling == scheduler.NoPooling && *e != Embed{}:
		return &scheduler.FieldError{Field: "Pooling", Err: fmt.Errorf("%w: Embed is given without Pooling", scheduler.ErrInvalid)}
	case e.Dimensions < 0 || e.Dimensions > info.HiddenSize && info.HiddenSize > 0:
		return &scheduler.FieldError{Field: "Dimensions", Err: fmt.Errorf("%w: Dimensions is %d, want 0 (all) to %d", scheduler.ErrInvalid, e.Dimensions, info.HiddenSize)}
	}
	return nil
}

// finish returns the vector that the caller gets of a pooled state, which it changes.
func (e *Embed) finish(state []float32) []float32 {
	if e.Dimensions > 0 {
		state = state[:e.Dimensions:e.Dimensions]
	}
	if e.Raw {
		return state
	}
	sum := 0.0
	for _, v := range state {
		sum += float64(v) * float64(v)
	}
	if sum == 0 {
		return state // no direction: a vector of zeros stays one
	}
	for i, v := range state {
		state[i] = float32(float64(v) / math.Sqrt(sum))
	}
	return state
}
