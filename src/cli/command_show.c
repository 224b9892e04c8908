/* command_show.c: `cleave show`: what a network is made of. */
#include "base/output.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/network_help.h"
#include "cli/options.h"

#include <stdio.h>
#include <string.h>

struct show_options {
    const char *model, *data;
    int64_t batch;
    bool json, loops;
};

static const char *const role_names[] = {
    [LOOP_OUTPUT] = "output", [LOOP_SUMMED] = "summed", [LOOP_STATISTIC] = "statistic"};

static const char *const cut_names[] = {[CUT_NEVER] = "never",
                                        [CUT_FREE] = "free",
                                        [CUT_HALO] = "halo",
                                        [CUT_PARTIAL] = "partial",
                                        [CUT_STATISTICS] = "statistics"};

enum { N_CUTS = sizeof cut_names / sizeof *cut_names };

/* ---- sums ---- */

static int64_t node_parameters(const struct graph *g, const struct graph_node *node)
{
    int64_t n = 0;
    for (int i = 0; i < node->n_params; i++) {
        const struct op_param *p = &g->params[node->first_param + i].spec;
        n += p->trained ? shape_elements(&p->shape) : 0;
    }
    return n;
}

static double node_flops(const struct graph_node *node)
{
    struct op_cost cost;
    op_get_cost(&node->op, &cost);
    return cost.forward_flops;
}

static double graph_flops(const struct graph *g)
{
    double sum = 0;
    for (int i = 1; i < g->n_nodes; i++)
        sum += node_flops(&g->nodes[i]);
    return sum;
}

/* Every layer's output once, as floats: what a step without any reuse of memory would hold. */
static int64_t graph_activation_bytes(const struct graph *g)
{
    int64_t n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += shape_elements(&g->nodes[i].op.output);
    return n * (int64_t)sizeof(float);
}

/* ---- the table ---- */

static const char *op_name(const struct graph_node *node)
{
    return op_get_info(node->op.op)->name;
}

static enum status print_table(const struct graph *g)
{
    static const struct table_column columns[] = {{"layer", TABLE_LEFT, 12},
                                                  {"op", TABLE_LEFT, 10},
                                                  {"output", TABLE_RIGHT, 0},
                                                  {"parameters", TABLE_RIGHT, 0},
                                                  {"FLOPs", TABLE_RIGHT, 0}};
    table *t;
    TRY(table_create(columns, 5, &t));
    for (int i = 1; i < g->n_nodes; i++) {
        const struct graph_node *node = &g->nodes[i];
        char text[64];
        table_cell(t, "%s", node->name);
        table_cell(t, "%s", op_name(node));
        table_cell(t, "%s", shape_text(text, sizeof text, &node->op.output));
        int64_t n_parameters = node_parameters(g, node);
        if (n_parameters)
            table_cell(t, "%lld", (long long)n_parameters);
        else
            table_cell(t, "-");
        table_cell(t, "%s", text_count(text, sizeof text, node_flops(node)));
    }
    return table_finish(t, stdout);
}

static void print_totals(const struct graph *g)
{
    char text[64];
    printf(
        "\nparameters     %lld (%s as floats)\n", (long long)graph_count_parameters(g),
        text_bytes(text, sizeof text, (double)graph_count_parameters(g) * (double)sizeof(float)));
    printf("forward FLOPs  %s (batch %lld; a multiply-add is two)\n",
           text_count(text, sizeof text, graph_flops(g)), (long long)g->batch);
    printf("activations    %s (every output once, as floats)\n",
           text_bytes(text, sizeof text, (double)graph_activation_bytes(g)));
}

static void print_heading(const struct graph *g, const struct dataset_info *info)
{
    char shape[64];
    printf("%s for %s: input %s, %lld classes\n\n", g->name, info->name,
           shape_text(shape, sizeof shape, &g->nodes[0].op.output), (long long)g->classes);
}

/* ---- loops ---- */

/* "128 g + k", "2 p + r - 1", "0" */
static void print_axis(const struct loop_nest *nest, const struct axis_map *a)
{
    if (a->kind == AXIS_ADAPTIVE) {
        const char *p = nest->loop[a->term[0].loop].name;
        printf("%lld %s / %lld ..", (long long)a->extent, p, (long long)a->out_extent);
        return;
    }
    for (int i = 0; i < a->n_terms; i++) {
        if (i > 0)
            printf(" + ");
        if (a->term[i].scale != 1)
            printf("%lld ", (long long)a->term[i].scale);
        printf("%s", nest->loop[a->term[i].loop].name);
    }
    if (a->n_terms == 0)
        printf("%lld", (long long)a->offset);
    else if (a->offset != 0)
        printf(" %c %lld", a->offset < 0 ? '-' : '+',
               (long long)(a->offset < 0 ? -a->offset : a->offset));
}

static void print_tensor(const struct loop_nest *nest, const char *name,
                         const struct tensor_map *map)
{
    printf("    %-12s [", name);
    for (int i = 0; i < map->rank; i++) {
        if (i > 0)
            printf(", ");
        print_axis(nest, &map->axis[i]);
    }
    printf("]\n");
}

static void print_extents(const struct loop_nest *nest)
{
    printf("    %-12s", "loops");
    for (int i = 0; i < nest->n_loops; i++)
        if (nest->loop[i].role != LOOP_SUMMED)
            printf(" %s=%lld", nest->loop[i].name, (long long)nest->loop[i].extent);
    bool first = true;
    for (int i = 0; i < nest->n_loops; i++)
        if (nest->loop[i].role == LOOP_SUMMED) {
            printf("%s %s=%lld", first ? " |" : "", nest->loop[i].name,
                   (long long)nest->loop[i].extent);
            first = false;
        }
    printf("\n");
}

/* "cuts   free: n k   halo: p q   partial: c" */
static void print_cuts(const struct loop_nest *nest)
{
    printf("    %-12s", "cuts");
    const char *gap = " ";
    for (int cut = CUT_FREE; cut < N_CUTS; cut++) {
        bool first = true;
        for (int i = 0; i < nest->n_loops; i++)
            if ((int)nest->loop[i].cut == cut) {
                if (first)
                    printf("%s%s:", gap, cut_names[cut]);
                printf(" %s", nest->loop[i].name);
                first = false;
                gap = "   ";
            }
    }
    printf("\n");
}

static void print_nest(const struct graph_node *node)
{
    struct loop_nest nest;
    op_get_loops(&node->op, &nest);
    struct op_param params[OP_MAX_PARAMS];
    int n_params = op_get_params(&node->op, params);
    printf("%s (%s)\n", node->name, op_name(node));
    print_extents(&nest);
    print_tensor(&nest, "output", &nest.output);
    for (int i = 0; i < nest.n_inputs; i++) {
        char name[32] = "input";
        if (nest.n_inputs > 1)
            (void)snprintf(name, sizeof name, "input %d", i);
        print_tensor(&nest, name, &nest.input[i]);
    }
    for (int i = 0; i < n_params && i < nest.n_params; i++)
        print_tensor(&nest, params[i].name, &nest.param[i]);
    print_cuts(&nest);
}

static void print_loops(const struct graph *g)
{
    for (int i = 1; i < g->n_nodes; i++)
        print_nest(&g->nodes[i]);
    printf("\n");
    output_line(0, "Loops behind | are summed. A cut that is free gives independent pieces; halo: "
                   "pieces read overlapping inputs; partial: outputs are partial sums; statistics: "
                   "pieces exchange statistics.");
}

/* ---- JSON ---- */

static json_t *json_shape(const struct shape *s)
{
    json_t *array = json_array();
    for (int i = 0; i < s->rank; i++)
        (void)json_array_append_new(array, json_integer(s->dim[i]));
    return array;
}

static json_t *json_loops(const struct graph_node *node)
{
    struct loop_nest nest;
    op_get_loops(&node->op, &nest);
    json_t *array = json_array();
    for (int i = 0; i < nest.n_loops; i++)
        (void)json_array_append_new(
            array, json_pack("{s:s, s:I, s:s, s:s}", "name", nest.loop[i].name, "extent",
                             (json_int_t)nest.loop[i].extent, "role", role_names[nest.loop[i].role],
                             "cut", cut_names[nest.loop[i].cut]));
    return array;
}

static json_t *json_layers(const struct graph *g)
{
    json_t *array = json_array();
    for (int i = 1; i < g->n_nodes; i++) {
        const struct graph_node *node = &g->nodes[i];
        (void)json_array_append_new(
            array, json_pack("{s:s, s:s, s:o, s:I, s:I, s:o}", "name", node->name, "op",
                             op_name(node), "output", json_shape(&node->op.output), "parameters",
                             (json_int_t)node_parameters(g, node), "forward_flops",
                             (json_int_t)node_flops(node), "loops", json_loops(node)));
    }
    return array;
}

static enum status print_json(const struct graph *g, const struct dataset_info *info)
{
    return output_json(json_pack(
        "{s:s, s:s, s:o, s:I, s:I, s:I, s:I, s:o}", "name", g->name, "data", info->name, "input",
        json_shape(&g->nodes[0].op.output), "classes", (json_int_t)g->classes, "parameters",
        (json_int_t)graph_count_parameters(g), "forward_flops", (json_int_t)graph_flops(g),
        "activation_bytes", (json_int_t)graph_activation_bytes(g), "layers", json_layers(g)));
}

/* ---- the command ---- */

static enum status parse(int argc, char **argv, struct show_options *o, bool *help)
{
    const struct option options[] = {
        OPTION_TEXT("--data", "SPEC", &o->data, "imagenet",
                    "the data that decides input shape, classes and variant; also the bare names "
                    "mnist, cifar10, imagenet, highres, imagenet22k"),
        OPTION_INTEGER("--batch", "N", &o->batch, 1, GRAPH_LARGEST_BATCH, "1", "images in a batch"),
        OPTION_FLAG("--loops", &o->loops, "print every layer's loop nest and its legal cuts"),
        OPTION_FLAG("--json", &o->json, "print one JSON object"),
        OPTION_END,
    };
    const struct positional positionals[] = {{"MODEL", &o->model, network_names_help()}, {0}};
    const struct option_set set = {
        .command = "show",
        .about = "Shows a network's layers with their shapes, parameters and operations.\n"
                 "No data is read.",
        .positionals = positionals,
        .options = options,
        .notes = data_notes,
        .examples = "  cleave show resnet18 --data cifar10\n"
                    "  cleave show alexnet --loops\n"
                    "  cleave show vgg16 --data synthetic:3x64x64/20 --batch 32 --json\n",
    };
    return options_parse(&set, argc, argv, help);
}

enum status command_show(int argc, char **argv)
{
    struct show_options o;
    bool help;
    TRY(parse(argc, argv, &o, &help));
    if (help)
        return STATUS_OK;
    struct dataset_info info;
    struct graph *g;
    TRY(subject_build(o.model, o.data, o.batch, -1, &info, &g));
    enum status st = STATUS_OK;
    if (o.json) {
        TRY_GOTO(st, print_json(g, &info), out);
    } else {
        print_heading(g, &info);
        if (o.loops)
            print_loops(g);
        else
            TRY_GOTO(st, print_table(g), out);
        print_totals(g);
    }
out:
    graph_destroy(g);
    return st;
}
