//go:build !unix

package main

import "runtime"

// pause ends the test: no signal stops a process on this system.
func (p *process) pause() {
	p.Helper()
	p.Skipf("%s has no signal that stops a process", runtime.GOOS)
}

func (p *process) resume() {}
