// Package vm owns the cudrv driver without a device: its one device is a
// ptxvm.Machine, so all that a backend does with a GPU is executed, and checked,
// by the host. It never reaches a GPU.
//
// It is stricter than a real driver where programs could get away with
// something: copies take host memory of HostAlloc alone, and work runs as late
// as the program allows.
//
//	driver := vm.New(ptxvm.Config{MemoryBytes: 1 << 30})
//	c, err := driver.Open(0)
package vm
