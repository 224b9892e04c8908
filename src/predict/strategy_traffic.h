/* strategy_traffic.h: what each named strategy would send and hold, for a report that has no
 * search: from the programs alone, so that no costs and no machine are needed. */
#ifndef CLEAVE_PREDICT_STRATEGY_TRAFFIC_H
#define CLEAVE_PREDICT_STRATEGY_TRAFFIC_H

#include "model/graph.h"

#include <jansson.h>

/* [{"name", "bytes_moved", "memory_bytes"}, ..], the caller's; of strategies that can use so many
 * workers for this network. For more than STRATEGY_TRAFFIC_WORKERS it is empty, and it ends early
 * where lowering takes seconds: it is a picture beside others. */
enum { STRATEGY_TRAFFIC_WORKERS = 16 };
enum status strategy_traffic(const struct graph *graph, int n_workers, json_t **out) MUST_USE;

#endif
