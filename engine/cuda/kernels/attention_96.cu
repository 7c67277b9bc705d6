// Attention for heads of 96, in a separate module: a backend loads only the head size that it needs.
#include "attention.cuh"

KERNELS(96)
