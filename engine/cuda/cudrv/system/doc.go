// Package system owns the choice of the driver that reaches this machine's GPUs:
// cudrv/dlopen, or cudrv/cu in a build with tag cuda. It opens no device.
//
//	driver, err := system.Open()
package system
