// Package zmq owns the sockets of vLLM's event plane: PUB for batches, ROUTER for replay, and
// their counterparts. It never looks into a payload and keeps no history.
//
// A published message is three frames: topic, sequence number (8 bytes, big-endian), payload. A
// replay request is an empty frame and 8 bytes, the first sequence number wanted. The answer is,
// per batch, an empty frame, the topic (vLLM since v0.26.0; earlier versions and SGLang leave it
// out, and both are understood), number and payload; at the end comes number -1 without a
// payload. The 8 bytes "snapshot" ask for a snapshot: publishers that don't know it read a
// number higher than any batch's, and answer with the end alone.
//
// It implements ZMTP 3.0 (https://rfc.zeromq.org/spec/23) itself, without security, like vLLM.
// github.com/go-zeromq/zmq4, against which it is tested, trusts the frame length that a peer
// announces and panics; it sends to all subscribers from one loop, so that a slow one stalls
// all; and it leaks a goroutine.
//
// Close of Sender and Source waits for all their goroutines.
package zmq
