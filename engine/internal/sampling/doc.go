// Package sampling draws tokens from logits, in the same way for every backend. It owns
// log-probabilities, digests, penalties, masks, cut-offs, counter-based random numbers, and the
// sampling state of each slot (parameters, counts, last token). It never runs a model and never
// ends a request.
//
// All arithmetic is integer, or f32 in the canonical order of package internal/f32, so equal
// logits give equal tokens on every target. The random numbers depend only on the slot's seed, the
// row's SampleIndex and the token ids: not on the batch, the chunking or repetition.
//
// A Sampler may be used by one goroutine, the one that runs a backend's batches.
//
//	s := sampling.New(info.MaxSlots, info.Vocab)
//	s.Bind(&batch.Binds[i])                       // in FIFO order
//	s.Sample(&batch.Rows[r], r, mask, logits, &out)     // fills out, counts the token; true: a draft is confirmed
//	token, ok := s.Last(slot)                     // for Deferred rows
package sampling
