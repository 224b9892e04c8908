#include "model/network.h"

#include "base/text.h"
#include "model/networks/networks.h"

#include <string.h>
#include <strings.h>

#define ADDRESS_OF(id) &network_##id,
static const struct network *const networks[] = {NETWORKS(ADDRESS_OF) NULL};

#define NAME_OF(id) #id,
static const char *const names[] = {NETWORKS(NAME_OF) NULL};

const char *const *network_names(void)
{
    return names;
}

static const struct network *look_up(const char *name)
{
    for (const struct network *const *n = networks; *n; n++)
        if (strcasecmp((*n)->name, name) == 0)
            return *n;
    return NULL;
}

/* The user may have given a plan instead of a network. */
static enum status fail_unknown(const char *name)
{
    size_t length = strlen(name);
    if (length > 5 && strcmp(name + length - 5, ".json") == 0)
        return status_fail(STATUS_USAGE,
                           "'%.80s' is a file, and a network is asked for here ('cleave predict "
                           "%.80s' takes a plan's file, and so do train and plan check)",
                           name, name);
    return text_fail_unknown("model", name, names);
}

enum status network_find(const char *name, const struct network **out)
{
    *out = look_up(name);
    return *out ? STATUS_OK : fail_unknown(name);
}

static void set_param_init(struct op_param *p, const struct layer_init *init)
{
    const struct shape *s = &p->shape;
    bool is_weight = strcmp(p->name, "weight") == 0;
    p->init = is_weight ? init->weight : init->bias;
    p->deviation = init->deviation;
    if (is_weight && init->by_outputs)
        p->fan = shape_elements(s) / s->dim[1]; /* [outputs, inputs, height, width] */
}

static void set_init(struct graph *g, const struct network_init *init)
{
    const struct {
        enum op_kind op;
        const struct layer_init *init;
    } kinds[] = {{OP_CONV2D, &init->conv}, {OP_LINEAR, &init->linear}};
    for (int i = 0; i < g->n_params; i++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            if (g->nodes[g->params[i].node].op.op == kinds[k].op)
                set_param_init(&g->params[i].spec, kinds[k].init);
}

enum status network_build(const char *name, const struct graph_variant *variant, struct graph **out)
{
    const struct network *network = look_up(name);
    if (!network)
        return fail_unknown(name);
    graph_builder *b;
    TRY(graph_builder_create(network->name, variant, &b));
    int logits = network->build(b, network);
    TRY(graph_builder_finish(b, logits, out));
    if (network->init && !(network->init->large_only && variant->small_form))
        set_init(*out, network->init);
    return STATUS_OK;
}

/* ---- what several families share ---- */

int network_add_pooled_head(graph_builder *b, const char *name, int input, double drop_probability)
{
    int x = graph_add_simple(b, "avgpool", OP_GLOBAL_POOL, input);
    x = graph_add_simple(b, "flatten", OP_FLATTEN, x);
    if (drop_probability > 0)
        x = graph_add_dropout(b, "dropout", x, drop_probability);
    return graph_add_linear(b, name, x, graph_builder_variant(b)->classes);
}

int network_add_basic_conv(graph_builder *b, const char *name, int input,
                           const struct basic_conv *conv)
{
    struct op_attrs attrs = {.out_channels = conv->channels, .groups = 1};
    for (int i = 0; i < 2; i++) {
        attrs.kernel[i] = conv->kernel[i];
        attrs.stride[i] = conv->stride;
        attrs.dilation[i] = 1;
        attrs.pad_before[i] = attrs.pad_after[i] = conv->same ? (conv->kernel[i] - 1) / 2 : 0;
    }
    graph_enter(b, "%s", name);
    int x = graph_add(b, "conv", OP_CONV2D, &attrs, 1, &input);
    x = graph_add_batch_norm(b, "bn", x, 1e-3);
    x = graph_add_simple(b, "relu", OP_RELU, x);
    graph_leave(b);
    return x;
}
