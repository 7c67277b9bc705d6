//go:build !linux

package main

// clockSync returns "unknown".
func clockSync() string { return "unknown" }
