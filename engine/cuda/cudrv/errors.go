package cudrv

import (
	"errors"
	"fmt"
)

// Sentinels that Error wraps, depending on its code.
var (
	ErrInvalid  = errors.New("cudrv: invalid argument")
	ErrMemory   = errors.New("cudrv: out of memory")
	ErrNoDevice = errors.New("cudrv: no such device")
	// ErrUnavailable means that libcuda is missing or does not work.
	ErrUnavailable = errors.New("cudrv: no CUDA driver")
	ErrImage       = errors.New("cudrv: the device can't run this code")
	ErrNotFound    = errors.New("cudrv: no such function")
	ErrLost        = errors.New("cudrv: the device is lost until the process ends") // after a fault of a kernel
	ErrNotAllowed  = errors.New("cudrv: not allowed now")
)

// Codes of the driver API, from cuda.h.
const (
	CodeInvalidValue     = 1
	CodeOutOfMemory      = 2
	CodeNoDevice         = 100
	CodeInvalidDevice    = 101
	CodeInvalidImage     = 200
	CodeNoBinary         = 209
	CodeECC              = 214 // uncorrectable memory error
	CodeInvalidPTX       = 218
	CodeUnsupportedPTX   = 222
	CodeInvalidHandle    = 400
	CodeNotFound         = 500
	CodeNotReady         = 600
	CodeIllegalAddress   = 700
	CodeLaunchResources  = 701
	CodeLaunchTimeout    = 702
	CodeMisaligned       = 716
	CodeLaunchFailed     = 719
	CodeNotPermitted     = 800
	CodeCaptureForbidden = 900
	CodeUnknown          = 999
)

// Error is a failed call.
type Error struct {
	Call string // of the driver API: "cuMemAlloc"
	Code int
	Err  error // the driver's text
}

func (e *Error) Error() string {
	return fmt.Sprintf("cudrv: %s failed with code %d: %v", e.Call, e.Code, e.Err)
}

// Unwrap returns the sentinel for the code, and Err.
func (e *Error) Unwrap() []error { return []error{sentinel(e.Code), e.Err} }

func sentinel(code int) error {
	switch {
	case code == CodeOutOfMemory:
		return ErrMemory
	case code == CodeNoDevice || code == CodeInvalidDevice:
		return ErrNoDevice
	case code == CodeInvalidImage || code == CodeNoBinary || code == CodeInvalidPTX || code == CodeUnsupportedPTX:
		return ErrImage
	case code == CodeECC:
		return ErrLost
	case code == CodeNotFound:
		return ErrNotFound
	case code >= CodeIllegalAddress && code < CodeNotPermitted && code != CodeLaunchResources, code == CodeUnknown:
		return ErrLost
	case code >= CodeNotPermitted && code < CodeUnknown:
		return ErrNotAllowed
	}
	return ErrInvalid
}
