#include "quant.cuh"

typedef Quant<8, 128, ONE_F16> Q8_0;
PRODUCTS(q8_0, Q8_0)
