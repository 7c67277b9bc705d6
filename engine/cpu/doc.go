// Package cpu is the reference backend: a decoder-only transformer (RMSNorm, rotary embedding,
// grouped-query attention over pages, SwiGLU) in portable Go, and kernels for AVX2, AVX-VNNI
// and AVX-512 that give the same bits ([ISA]). It owns the packed weights, the KV arena and
// its goroutines. It never decides which batch to run, and it never reads a slot past a
// sequence's end.
//
// Order of summation "f32-seqk", version 1:
//   - an element of a matrix product is one chain of fused multiply-adds over ascending k,
//     starting at zero;
//   - an attention score is f32.Dot;
//   - softmax weights are summed in 16 lanes by absolute position;
//   - values are accumulated by ascending position.
//
// None of this depends on the batch, on page size, on chunks or on the number of threads, and
// attention always reads K and V back from pages. The logits after a prefix are therefore the
// same bits in every case, and Info.Deterministic is set. Quantised weights are multiplied in
// integers, in blocks of 32 activations and one chain over ascending blocks ("q8-block32", see
// quant.go). K and V may be stored in a narrower type than f32 ([Config.KVType]); an entry is
// then rounded once, when it is written.
//
// One goroutine runs batches and moves in the order of submission; workers share the units of
// each phase with it. Submit and Move must be called from one goroutine, the other methods
// from any.
//
//	m, err := model.Open(dir)
//	backend, err := cpu.Open(m, cpu.Config{Pages: 1024})
//	m.Close() // the weights are packed
//	ticket, err := backend.Submit(&batch)
//	<-ticket.Done()
//	result, err := ticket.Result()
//	backend.Close()
package cpu
