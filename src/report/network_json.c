/* A network as the report draws it. */
#include "report/report.h"

static json_t *shape_json(const struct shape *s)
{
    json_t *array = json_array();
    for (int i = 0; i < s->rank; i++)
        (void)json_array_append_new(array, json_integer((json_int_t)s->dim[i]));
    return array;
}

static json_t *inputs_json(const struct graph_node *node)
{
    json_t *array = json_array();
    for (int i = 0; i < node->op.n_inputs; i++)
        (void)json_array_append_new(array, json_integer(node->input[i]));
    return array;
}

/* The loops by name, summed ones apart: a cut of those gives partial sums. */
static json_t *loops_json(const struct graph_node *node)
{
    static const char *const roles[] = {
        [LOOP_OUTPUT] = "output", [LOOP_SUMMED] = "summed", [LOOP_STATISTIC] = "output"};
    struct loop_nest nest;
    json_t *loops = json_pack("{s:{}, s:{}}", "output", "summed");
    op_get_loops(&node->op, &nest);
    for (int i = 0; i < nest.n_loops; i++)
        (void)json_object_set_new(json_object_get(loops, roles[nest.loop[i].role]),
                                  nest.loop[i].name, json_integer((json_int_t)nest.loop[i].extent));
    return loops;
}

static json_t *node_json(const struct graph *g, int number)
{
    const struct graph_node *node = &g->nodes[number];
    struct op_cost cost = {0};
    if (number > 0)
        op_get_cost(&node->op, &cost);
    return json_pack("{s:s, s:s, s:o, s:o, s:I, s:f, s:o}", "name", node->name, "op",
                     op_get_info(node->op.op)->name, "inputs", inputs_json(node), "shape",
                     shape_json(&node->op.output), "parameters",
                     (json_int_t)graph_node_parameters(g, node), "flops", cost.forward_flops,
                     "loops", number > 0 ? loops_json(node) : json_object());
}

json_t *report_network(const struct graph *graph)
{
    json_t *nodes = json_array();
    for (int i = 0; i < graph->n_nodes; i++)
        (void)json_array_append_new(nodes, node_json(graph, i));
    return json_pack("{s:s, s:I, s:I, s:I, s:o}", "name", graph->name, "batch",
                     (json_int_t)graph->batch, "classes", (json_int_t)graph->classes, "parameters",
                     (json_int_t)graph_count_parameters(graph), "nodes", nodes);
}
