// Package linked owns the way from the C stubs of a static libcuda.a into a
// program that is linked with it: it exports the function that the stubs call.
// With a libcuda that has no stubs it does nothing. Only tests import it, with
// build tag cuda.
package linked
