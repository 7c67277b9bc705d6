// Package zmq owns the sockets of the event plane as vLLM has them: PUB for
// batches, ROUTER for replay, and their counterparts. It never looks into a
// payload and keeps no history.
//
// A published message is three frames: topic, sequence number (8 bytes,
// big-endian), payload. A replay is asked for by an empty frame and 8 bytes, the
// first sequence number wanted; the answer is, per batch, an empty frame, the
// topic (vLLM since v0.26.0; not before, nor SGLang: both are understood), number
// and payload, and at the end number -1 with nothing. The 8 bytes "snapshot" ask
// for all that is held: publishers that don't know it take it for a number that
// none of their batches has, and answer with the end alone.
//
// It speaks ZMTP 3.0 (https://rfc.zeromq.org/spec/23) itself, without security as
// vLLM does. github.com/go-zeromq/zmq4, by which it is tested, believes the length
// of a frame that a peer announces and panics, sends to all subscribers from one
// loop, so that a slow one stalls all, and leaves a goroutine behind.
//
// Sender and Source wait in Close for every goroutine of theirs.
package zmq
