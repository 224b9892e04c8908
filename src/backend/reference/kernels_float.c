#define REAL float
#define KERNELS kernels_float
#include "backend/reference/kernels.inc.h"
