// Package system owns the choice of the driver that reaches this machine's GPUs:
// cudrv/internal/dlopen, or cudrv/internal/cu in a build with tag cuda. It opens no device.
//
//	driver, err := system.Open()
package system
