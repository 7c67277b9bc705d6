// Package actors owns the concurrency of Coppice: one file per actor, the
// messages between them, and the order in which they start and stop. It decides
// nothing about requests, pages or tokens: the scheduler does, a plain value
// that its actor drives. Only this package imports protoactor.
//
// Config, Request, Piece, Ending and the types in them are also those of package coppice, whose
// Node is a System with its Template and the words of public errors: their comments are for its
// users, and api.go of the root shows them.
//
// The stages of a request, and where they run:
//
//	Open (caller)  open.go       a credit, or refusal; the stream is registered
//	encode         tokenizer.go  text to tokens, one of a few stateless workers
//	submit         scheduler.go  queue, match, plan; the only one with state that decides
//	step           engine.go     the plan goes to the backend, its result comes back;
//	                             with Scheduler.MaxInflight 2 the next is planned meanwhile
//	delivery       deliver.go    tokens to text, into the request's stream
//	Next (caller)  stream.go     pieces, merged while the caller is slow
//
// Besides, the pool actor (pool.go) grants pages in bulk, a log (events.go) numbers
// cache events and keeps the latest ones for readers, and an alarm (alarm.go) wakes the
// scheduler when a time limit passes while no messages arrive.
//
// Mailboxes are unbounded but can't grow: every open request holds a credit and has
// at most one message in flight to each actor, the engine has at most MaxInflight steps,
// the pool one want and one give, the alarm one tick. No actor blocks
// inside Receive.
//
// State actors stop on a panic and are never restarted, since their state would
// be lost: the system fails, every open request ends with that error, and the
// device is released. Tokenizer workers have no state and restart; only the request
// that the worker was encoding ends with an error.
//
//	sys, err := actors.Start(actors.Config{Backend: backend, Tokenizer: tok})
//	stream, err := sys.Open(actors.Request{Prompt: "Once"})
//	piece, err := stream.Next(ctx)
//	err = sys.Close()
package actors
