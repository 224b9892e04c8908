/* Models: a network for data of some shape. */
#include "api/handles.h"
#include "base/text.h"
#include "predict/subject.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 256 };

/* ---- layers ---- */

static void append(char text[TEXT_BYTES], const char *part)
{
    size_t used = strlen(text);
    (void)snprintf(text + used, TEXT_BYTES - used, "%s%s", used ? " " : "", part);
}

static void append_loops(char text[TEXT_BYTES], const struct loop_nest *nest, bool summed)
{
    char part[64];
    for (int i = 0; i < nest->n_loops; i++)
        if ((nest->loop[i].role == LOOP_SUMMED) == summed) {
            (void)snprintf(part, sizeof part, "%s=%lld", nest->loop[i].name,
                           (long long)nest->loop[i].extent);
            append(text, part);
        }
}

/* "n=128 k=6 | c=1" */
static enum status describe_loops(cleave_model *m, const struct loop_nest *nest, const char **out)
{
    char text[TEXT_BYTES] = "", behind[TEXT_BYTES] = "";
    append_loops(text, nest, false);
    append_loops(behind, nest, true);
    if (behind[0]) {
        append(text, "|");
        append(text, behind);
    }
    return arena_copy_text(m->memory, text, out);
}

static enum status describe_cuts(cleave_model *m, const struct loop_nest *nest, const char **out)
{
    char text[TEXT_BYTES] = "";
    for (int i = 0; i < nest->n_loops; i++)
        if (nest->loop[i].cut != CUT_NEVER)
            append(text, nest->loop[i].name);
    return arena_copy_text(m->memory, text, out);
}

static enum status describe_layer(cleave_model *m, const struct graph_node *node,
                                  struct cleave_layer *to)
{
    struct loop_nest nest;
    struct op_cost cost;
    char shape[64];
    op_get_loops(&node->op, &nest);
    op_get_cost(&node->op, &cost);
    to->name = node->name;
    to->op = op_get_info(node->op.op)->name;
    to->parameters = graph_node_parameters(m->graph, node);
    to->forward_flops = cost.forward_flops;
    TRY(arena_copy_text(m->memory, shape_text(shape, sizeof shape, &node->op.output), &to->output));
    TRY(describe_loops(m, &nest, &to->loops));
    return describe_cuts(m, &nest, &to->cuts);
}

/* ---- the model ---- */

/* Every layer's output once. */
static int64_t sum_activations(const struct graph *g)
{
    int64_t n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += shape_elements(&g->nodes[i].op.output);
    return n * (int64_t)sizeof(float);
}

static enum status describe(cleave_model *m, const char *data)
{
    struct cleave_model_info *i = &m->info;
    *i = (struct cleave_model_info){.batch = m->graph->batch,
                                    .channels = m->data.channels,
                                    .height = m->data.height,
                                    .width = m->data.width,
                                    .classes = m->data.classes,
                                    .n_train = m->data.n_train,
                                    .n_test = m->data.n_test,
                                    .n_layers = m->graph->n_nodes - 1,
                                    .parameters = graph_count_parameters(m->graph),
                                    .activation_bytes = sum_activations(m->graph)};
    i->network = m->graph->name;
    TRY(arena_copy_text(m->memory, data, &i->data));
    TRY(arena_alloc_array(m->memory, (size_t)i->n_layers, sizeof *m->layers, &m->layers));
    for (int k = 0; k < i->n_layers; k++) {
        TRY(describe_layer(m, &m->graph->nodes[k + 1], &m->layers[k]));
        i->forward_flops += m->layers[k].forward_flops;
    }
    return STATUS_OK;
}

static enum status fill(cleave_model *m, const char *network, const char *data, int64_t batch)
{
    TRY(api_check_range("batch", batch, 1, GRAPH_LARGEST_BATCH));
    TRY(arena_create(&m->memory));
    TRY(subject_build(network, data, batch, -1, &m->data, &m->graph));
    return describe(m, data);
}

enum status api_open_model(const char *network, const char *data, int64_t batch, cleave_model **out)
{
    cleave_model *m;
    TRY(api_alloc(sizeof *m, &m));
    atomic_init(&m->holders, 1);
    enum status st = fill(m, network, data, batch);
    if (st == STATUS_OK)
        *out = m;
    else
        cleave_model_destroy(m);
    return st;
}

enum cleave_status cleave_model_open(const char *network, const char *data, int64_t batch,
                                     cleave_model **out)
{
    API_BEGIN();
    API_NEEDS_OUT(out);
    API_NEEDS(network);
    API_NEEDS(data);
    return api_end(api_open_model(network, data, batch, out));
}

const cleave_model *api_hold_model(const cleave_model *model)
{
    atomic_fetch_add(&((cleave_model *)model)->holders, 1);
    return model;
}

void cleave_model_destroy(cleave_model *model)
{
    if (!model || atomic_fetch_sub(&model->holders, 1) > 1)
        return;
    graph_destroy(model->graph);
    arena_destroy(model->memory);
    free(model);
}

/* ---- groups of weights ---- */

static enum status change_groups(cleave_model *m, const char *text,
                                 enum status (*change)(struct graph *, const char *))
{
    if (atomic_load(&m->holders) > 1)
        return status_fail(STATUS_USAGE, "a plan has been made of this model: choose its groups of "
                                         "weights before");
    return change(m->graph, text);
}

enum cleave_status cleave_model_freeze(cleave_model *model, const char *globs)
{
    API_BEGIN();
    API_NEEDS(model);
    API_NEEDS(globs);
    return api_end(change_groups(model, globs, graph_freeze));
}

enum cleave_status cleave_model_skip_decay(cleave_model *model, const char *globs)
{
    API_BEGIN();
    API_NEEDS(model);
    API_NEEDS(globs);
    return api_end(change_groups(model, globs, graph_skip_decay));
}

enum cleave_status cleave_model_scale_rates(cleave_model *model, const char *factors)
{
    API_BEGIN();
    API_NEEDS(model);
    API_NEEDS(factors);
    return api_end(change_groups(model, factors, graph_scale_rates));
}

const struct cleave_model_info *cleave_model_get_info(const cleave_model *model)
{
    return model ? &model->info : NULL;
}

const struct cleave_layer *cleave_model_get_layer(const cleave_model *model, int index)
{
    return model && index >= 0 && index < model->info.n_layers ? &model->layers[index] : NULL;
}
