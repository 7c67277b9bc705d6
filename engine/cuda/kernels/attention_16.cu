// Attention for heads of 16: a module of its own, for a backend loads one.
#include "attention.cuh"

KERNELS(16)
