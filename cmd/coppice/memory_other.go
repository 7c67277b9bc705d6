//go:build !linux

package main

// memoryBytes returns 0: the memory is unknown on this system.
func memoryBytes() int64 { return 0 }
