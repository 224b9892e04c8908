#include "odd_axes.h"

const struct axes odd_axes = {5, {USE_TOKEN, USE_BATCH, USE_CHANNEL, USE_ROW, USE_COLUMN}};

struct op_case odd_case(enum op_kind kind, int64_t batch)
{
    const struct shape shape = {5, {ODD_TOKENS, batch, ODD_CHANNELS, ODD_ROWS, ODD_COLUMNS}};
    struct op_case op = {.op = kind, .axes = odd_axes};
    op.n_inputs = kind == OP_INPUT ? 0 : kind == OP_ADD ? 2 : 1;
    op.attrs.drop_probability = kind == OP_DROPOUT ? 0.5 : 0;
    for (int i = 0; i < op.n_inputs; i++)
        op.input[i] = shape;
    op.output = shape;
    assert_ok(op_infer_shape(&op));
    return op;
}

struct graph *odd_graph(int64_t batch)
{
    static const struct {
        const char *name;
        enum op_kind op;
        int input[2];
    } layers[] = {{"input", OP_INPUT, {0, 0}},
                  {"relu", OP_RELU, {0, 0}},
                  {"drop", OP_DROPOUT, {1, 0}},
                  {"sum", OP_ADD, {1, 2}},
                  {"tanh", OP_TANH, {3, 0}}};
    enum { N = sizeof layers / sizeof *layers };
    arena *memory;
    struct graph *g;
    assert_ok(arena_create(&memory));
    assert_ok(arena_alloc(memory, sizeof *g, &g));
    *g = (struct graph){
        .memory = memory, .name = "odd", .batch = batch, .classes = ODD_CHANNELS, .n_nodes = N};
    assert_ok(arena_alloc_array(memory, N, sizeof *g->nodes, &g->nodes));
    for (int i = 0; i < N; i++) {
        g->nodes[i] =
            (struct graph_node){.name = layers[i].name, .op = odd_case(layers[i].op, batch)};
        memcpy(g->nodes[i].input, layers[i].input, sizeof layers[i].input);
    }
    return g;
}
