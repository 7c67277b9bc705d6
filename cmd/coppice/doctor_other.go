//go:build !linux && !darwin

package main

import "os"

// writable returns why this user can't make files in a directory: it makes one, and removes it.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, "coppice-doctor-")
	if err != nil {
		return err
	}
	f.Close()
	return os.Remove(f.Name())
}

// freeBytes returns -1: the room is unknown on this system.
func freeBytes(string) int64 { return -1 }

// lookAtFiles returns no limits: they are unknown on this system.
func lookAtFiles(conns int) filesFacts { return filesFacts{Conns: conns} }
