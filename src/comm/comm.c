#include "comm/comm.h"

static const char *const method_names[] = {
    [COMM_GATHER] = "gather",
    [COMM_RING] = "ring",
    [COMM_TREE] = "tree",
    [COMM_HIERARCHICAL] = "hierarchical",
};
_Static_assert(sizeof method_names / sizeof *method_names == COMM_METHOD_COUNT,
               "one name per method");

const char *comm_method_name(enum comm_method method)
{
    return (unsigned)method < COMM_METHOD_COUNT ? method_names[method] : "unknown";
}
