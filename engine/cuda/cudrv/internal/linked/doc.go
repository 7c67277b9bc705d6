// Package linked owns the function that the C stubs of a static libcuda.a call in the
// program that is linked with it. With a real libcuda it does nothing. Only tests import
// it, with build tag cuda.
package linked
