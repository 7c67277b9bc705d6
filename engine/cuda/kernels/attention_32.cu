// Attention for heads of 32: a module of its own, for a backend loads one.
#include "attention.cuh"

KERNELS(32)
