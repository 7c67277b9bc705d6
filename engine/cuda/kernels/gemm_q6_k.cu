#include "quant.cuh"

typedef Quant<6, 32, TWO_SCALES> Q6_K;
PRODUCTS(q6_k, Q6_K)
