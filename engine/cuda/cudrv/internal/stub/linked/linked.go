//go:build cuda && linux

package linked

/*
#include <stdint.h>
int coppice_linked(void);
*/
import "C"

import (
	"unsafe"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv/internal/stub"
)

var current *stub.Stub

// Use makes the stubs call s from now on. It reports whether the program is linked with stubs.
func Use(s *stub.Stub) bool {
	current = s
	return C.coppice_linked() != 0
}

//export coppiceStub
func coppiceStub(f C.int, a *C.uint64_t) C.int {
	return C.int(current.Call(int(f), (*uint64)(unsafe.Pointer(a))))
}
