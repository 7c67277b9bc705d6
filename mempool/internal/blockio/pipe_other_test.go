//go:build !unix

package blockio

func makePipe(string) bool { return false }
