//go:build cuda && linux

#include <stdint.h>

#include "_cgo_export.h"

// Of libcuda.a, if that is the stubs.
extern int (*coppice_stub)(int f, uint64_t *a) __attribute__((weak));

int coppice_linked(void) { return &coppice_stub != 0; }

// Before main, and so before package cu looks for a device.
__attribute__((constructor)) static void connect_stubs(void) {
	if (&coppice_stub)
		coppice_stub = (int (*)(int, uint64_t *))coppiceStub;
}
