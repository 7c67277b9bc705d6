//go:build cuda && linux

package linked

/*
#include <stdint.h>
int coppice_linked(void);
*/
import "C"

import "unsafe"

var current func(f int, args *uint64) int

// Use makes the stubs call from now on the given function, with their number and arguments. It
// reports whether the program is linked with stubs.
func Use(call func(f int, args *uint64) int) bool {
	current = call
	return C.coppice_linked() != 0
}

//export coppiceStub
func coppiceStub(f C.int, a *C.uint64_t) C.int {
	return C.int(current(int(f), (*uint64)(unsafe.Pointer(a))))
}
