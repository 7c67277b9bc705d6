// Attention for heads of 80: a module of its own, for a backend loads one.
#include "attention.cuh"

KERNELS(80)
