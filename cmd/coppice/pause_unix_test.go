//go:build unix

package main

import "syscall"

// pause stops the process until resume continues it. A stopped process cannot end.
func (p *process) pause() {
	p.Helper()
	p.signal(syscall.SIGSTOP)
}

func (p *process) resume() {
	p.Helper()
	p.signal(syscall.SIGCONT)
}
