// Package e2e owns the proof that a subscriber which no one here wrote,
// github.com/llm-d/llm-d-kv-cache v0.9.0, reads our stream and comes to the same
// index. It is a module of its own, so that nothing else has its dependencies.
package e2e
