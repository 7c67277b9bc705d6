// Package cpu is the reference backend: a decoder-only transformer (RMSNorm,
// rotary embedding, grouped-query attention over pages, SwiGLU) in portable Go,
// with kernels for AVX2, AVX-VNNI and AVX-512 beside it that give the same bits ([ISA]).
// It owns the packed weights, the KV arena and its goroutines. It never decides
// what to run, and it never reads a slot past a sequence's end.
//
// Order of summation "f32-seqk", version 1: a matrix product's element is one
// chain of fused multiply-adds over ascending k, starting at zero; an attention
// score is f32.Dot; weights of the softmax are summed in 16 lanes by absolute
// position; values are accumulated by ascending position. No order depends on
// the batch, on pages, on chunks or on threads, and K and V are always read back
// from pages, so the logits after a prefix are the same bits in all cases:
// Info.Deterministic is set. Quantised weights are multiplied in integers by blocks of
// 32 activations, one chain over ascending blocks ("q8-block32", see quant.go). K and V may
// be stored in other types than f32 ([Config.KVType]), which round an entry once.
//
// One goroutine runs batches and moves in the order of submission; workers
// help it within a layer. Submit and Move are called from one goroutine, the
// other methods from any.
//
//	m, err := model.Open(dir)
//	backend, err := cpu.Open(m, cpu.Config{Pages: 1024})
//	m.Close() // the weights are packed
//	ticket, err := backend.Submit(&batch)
//	<-ticket.Done()
//	result, err := ticket.Result()
//	backend.Close()
package cpu
