// Package toolcall owns the forms in which models write tool calls, in one table:
// package jsonschema makes grammars from it, package parse reads outputs by it. It never reads or
// writes an output.
package toolcall
