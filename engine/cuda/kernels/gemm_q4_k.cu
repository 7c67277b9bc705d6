#include "quant.cuh"

typedef Quant<4, 0, TWO_BYTES> Q4_K;
PRODUCTS(q4_k, Q4_K)
