// Package sampling owns the drawing of tokens from logits, the same for every
// backend: log-probabilities, digests, penalties, masks, cut-offs and the
// counter-based random numbers. It holds the per-slot sampling state (parameters,
// counts, last token). It never runs a model and never ends a request.
//
// Everything is f32 in the canonical order of package internal/f32, or integer,
// so equal logits give equal tokens on every target. A draw depends on the
// slot's seed, the row's SampleIndex and the token ids alone: not on the batch,
// the chunking or how often it is repeated.
//
// A Sampler belongs to the one goroutine that runs a backend's batches.
//
//	s := sampling.New(info.MaxSlots, info.Vocab)
//	s.Bind(&batch.Binds[i])                       // in FIFO order
//	s.Sample(&batch.Rows[r], r, mask, logits, &out)     // fills out, counts the token
//	token, ok := s.Last(slot)                     // for Deferred rows
package sampling
