// Package vm owns the cudrv driver without a GPU. Its one device is a ptxvm.Machine, so
// the host executes and checks all of a backend's GPU work. It never reaches a GPU.
//
// It is stricter than a real driver: copies accept only host memory of HostAlloc, and
// work runs as late as the program allows.
//
//	driver := vm.New(ptxvm.Config{MemoryBytes: 1 << 30})
//	c, err := driver.Open(0)
package vm
