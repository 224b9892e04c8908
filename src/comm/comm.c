#include "comm/comm.h"

#include <sched.h>
#include <unistd.h>

enum {
    CHUNKS_PER_PARTY = 4,     /* small enough to share the work evenly .. */
    MIN_CHUNK_BYTES = 4096,   /* .. but not so small that claiming counts .. */
    MAX_CHUNK_BYTES = 131072, /* .. nor so large that a poll takes long */
    LINE_BYTES = 64,
};

static const char *const method_names[] = {
    [COMM_GATHER] = "gather",
    [COMM_RING] = "ring",
    [COMM_TREE] = "tree",
    [COMM_HIERARCHICAL] = "hierarchical",
};
_Static_assert(sizeof method_names / sizeof *method_names == COMM_METHOD_COUNT,
               "one name per method");

static const char *const kind_names[] = {
    [COMM_ALL_REDUCE] = "all-reduce",
    [COMM_REDUCE_SCATTER] = "reduce-scatter",
    [COMM_ALL_GATHER] = "all-gather",
};
_Static_assert(sizeof kind_names / sizeof *kind_names == COMM_KIND_COUNT, "one name per kind");

const char *comm_kind_name(enum comm_kind kind)
{
    return (unsigned)kind < COMM_KIND_COUNT ? kind_names[kind] : "unknown";
}

const char *comm_method_name(enum comm_method method)
{
    return (unsigned)method < COMM_METHOD_COUNT ? method_names[method] : "unknown";
}

/* Whole cache lines, so that two parties never write to the same one. */
struct comm_chunks comm_cut(int64_t count, int64_t element_bytes, int n_members)
{
    int64_t line = LINE_BYTES / element_bytes;
    int64_t least = MIN_CHUNK_BYTES / element_bytes, most = MAX_CHUNK_BYTES / element_bytes;
    struct comm_chunks c = {.size = count / (n_members * CHUNKS_PER_PARTY)};
    c.size = (c.size + line - 1) / line * line;
    c.size = c.size < least ? least : c.size;
    c.size = c.size > most ? most : c.size;
    c.n = (count + c.size - 1) / c.size;
    if (c.n == 0)
        c.n = 1; /* no element, but an end all the same */
    return c;
}

int comm_count_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > 0 ? (int)cores : 1;
}
