// Attention for heads of 128, in a separate module: a backend loads only the head size that it needs.
#include "attention.cuh"

KERNELS(128)
