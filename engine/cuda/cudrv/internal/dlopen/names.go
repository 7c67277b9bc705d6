//go:build linux && (amd64 || arm64) && (cgo || purego)

package dlopen

// function is the index of a driver call in names.
type function int

const (
	cuInit function = iota
	cuGetErrorString
	cuDriverGetVersion
	cuDeviceGetCount
	cuDeviceGet
	cuDeviceGetName
	cuDeviceTotalMem
	cuDeviceGetAttribute
	cuDevicePrimaryCtxRetain
	cuDevicePrimaryCtxRelease
	cuCtxSetCurrent
	cuMemGetInfo
	cuMemAlloc
	cuMemFree
	cuMemHostAlloc
	cuMemFreeHost
	cuModuleLoadDataEx
	cuModuleGetFunction
	cuFuncSetAttribute
	cuLaunchKernel
	cuStreamCreate
	cuStreamSynchronize
	cuStreamWaitEvent
	cuEventCreate
	cuEventRecord
	cuEventSynchronize
	cuEventElapsedTime
	cuMemcpyHtoDAsync
	cuMemcpyDtoHAsync
	cuMemcpyDtoDAsync
	cuMemsetD8Async
	cuMemsetD32Async
	cuStreamBeginCapture
	cuStreamEndCapture
	cuGraphInstantiate
	cuGraphLaunch
	cuGraphDestroy
	cuGraphExecDestroy
	functions
)

// names lists the library's symbols, with the suffixes that cuda.h's macros add.
var names = [functions]string{
	"cuInit", "cuGetErrorString", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceTotalMem_v2",
	"cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2", "cuCtxSetCurrent",
	"cuMemGetInfo_v2", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemHostAlloc", "cuMemFreeHost",
	"cuModuleLoadDataEx", "cuModuleGetFunction", "cuFuncSetAttribute", "cuLaunchKernel",
	"cuStreamCreate", "cuStreamSynchronize", "cuStreamWaitEvent",
	"cuEventCreate", "cuEventRecord", "cuEventSynchronize", "cuEventElapsedTime",
	"cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemsetD8Async", "cuMemsetD32Async",
	"cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuGraphDestroy", "cuGraphExecDestroy",
}
