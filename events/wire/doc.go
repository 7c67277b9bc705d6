// Package wire owns the encoding of KV event batches as vLLM publishes them and SGLang, Dynamo
// and llm-d follow: msgpack, events as maps or as arrays with a leading tag, hashes as integers
// or as bytes. It never opens a socket, keeps no state between batches and trusts no input:
// hostile input gives an error, within the memory that [Limits] allow.
//
// Nothing here is safe for concurrent use; a [Decoder] belongs to one goroutine.
//
//	payload := wire.AppendBatch(nil, &batch, wire.Form{})
//	var dec wire.Decoder
//	got, err := dec.Decode(payload) // valid until the next Decode
//	for i := range got.Events {
//		e := &got.Events[i]
//		...
//	}
//
// Source of the layout: vLLM vllm/distributed/kv_events.py, SGLang
// sglang/srt/disaggregation/kv_events.py; both serialise with msgspec.
package wire
