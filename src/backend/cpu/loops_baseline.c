/* For any machine: the compiler's default instructions. */
#define LANES 8
#define ROWS 2
#define LOOPS_NAME "baseline"
#include "backend/cpu/loops.inc"

const struct cpu_loops *cpu_loops_baseline(void)
{
    return &loops_table;
}
