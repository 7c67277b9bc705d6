//go:build !linux

package main

// clockSync returns "unknown".
func clockSync() string { return "unknown" }

// readMemory returns nothing: the memory is unknown on this system.
func readMemory() memory { return memory{} }
