/* Compiled with AVX-512; see CMakeLists.txt. */
#ifdef __AVX512F__
#define LANES 16
#define ROWS 12
#define LOOPS_NAME "avx512"
#include "backend/cpu/loops.inc"

const struct cpu_loops *cpu_loops_avx512(void)
{
    bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
    return has ? &loops_table : NULL;
}
#else
#include "backend/cpu/loops.h"

const struct cpu_loops *cpu_loops_avx512(void)
{
    return NULL;
}
#endif
