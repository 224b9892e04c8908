/* Compiled with AVX2 and FMA; see CMakeLists.txt. */
#ifdef __AVX2__
#define LANES 8
#define ROWS 6
#define LOOPS_NAME "avx2"
#include "backend/cpu/loops.inc"

const struct cpu_loops *cpu_loops_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &loops_table : NULL;
}
#else
#include "backend/cpu/loops.h"

const struct cpu_loops *cpu_loops_avx2(void)
{
    return NULL;
}
#endif
