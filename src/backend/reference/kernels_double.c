#define REAL double
#define KERNELS kernels_double
#include "backend/reference/kernels.inc.h"
