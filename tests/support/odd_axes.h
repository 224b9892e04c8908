/* odd_axes.h: a network by hand whose tensors are [token, batch, channel, row, column]: five axes,
 * of which neither the first is the batch nor the second the channels. Whatever finds those by
 * position goes wrong on it.
 *
 *     0 input ──► 1 relu ──► 2 drop ──► 3 sum ──► 4 tanh
 *                     └────────────────►
 *
 * There is no loss, and no loader could fill the input (graph_check refuses it); plans, lowering,
 * the checker and the search take it.
 */
#ifndef CLEAVE_TESTS_ODD_AXES_H
#define CLEAVE_TESTS_ODD_AXES_H

#include "model/graph.h"
#include "testing.h"

enum {
    ODD_TOKENS = 6,
    ODD_CHANNELS = 5,
    ODD_ROWS = 4,
    ODD_COLUMNS = 3,
    ODD_BATCH_AXIS = 1,
    ODD_CHANNEL_AXIS = 2
};

extern const struct axes odd_axes;

/* The op for a tensor of these axes; of two inputs if it is a sum. */
struct op_case odd_case(enum op_kind kind, int64_t batch);

/* graph_destroy frees it. */
struct graph *odd_graph(int64_t batch);

#endif
