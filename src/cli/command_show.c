/* command_show.c: `cleave show`: the layers of a network. */
#include "base/results.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/network_help.h"
#include "cli/options.h"
#include "cli/subject_options.h"

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

static const char *op_name(const struct graph_node *node)
{
    return op_get_info(node->op.op)->name;
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

/* ---- results ---- */

static void report_layers(const struct graph *g, struct results *r, enum results_forms forms)
{
    static const struct field fields[] = {{"layer", "name", NULL, 0, 12},
                                          {"op", "op", NULL, 0, 10},
                                          {"output", NULL, ">", 0, 0},
                                          HIDDEN("output"),
                                          {"parameters", "parameters", "-%.0f", 0, 0},
                                          {"FLOPs", "forward_flops", "count", 0, 0},
                                          HIDDEN("loops"),
                                          {0}};
    results_table(r, "layers", fields, forms);
    for (int i = 1; i < g->n_nodes; i++) {
        const struct graph_node *node = &g->nodes[i];
        char shape[64];
        RESULTS_ROW(r, v_text(node->name), v_text(op_name(node)),
                    v_text(shape_text(shape, sizeof shape, &node->op.output)),
                    v_json(json_shape(&node->op.output)), v_int(graph_node_parameters(g, node)),
                    v_int((int64_t)node_flops(node)), v_json(json_loops(node)));
    }
    results_table_end(r);
}

static void report(const struct graph *g, const struct dataset_info *info, bool loops,
                   struct results *r)
{
    int64_t parameters = graph_count_parameters(g), activations = graph_activation_bytes(g);
    char text[SHAPE_TEXT_BYTES];
    results_put(r, "name", v_text(g->name));
    results_put(r, "data", v_text(info->name));
    results_put(r, "input", v_json(json_shape(&g->nodes[0].op.output)));
    results_put(r, "classes", v_int(g->classes));
    results_put(r, "parameters", v_int(parameters));
    results_put(r, "forward_flops", v_int((int64_t)graph_flops(g)));
    results_put(r, "activation_bytes", v_int(activations));
    results_say(r, 2, "%s for %s: input %s, %lld classes", g->name, info->name,
                shape_text(text, sizeof text, &g->nodes[0].op.output), (long long)g->classes);
    results_say(r, 0, "%s", "");
    if (loops && r->text)
        print_loops(g);
    report_layers(g, r, loops ? FOR_JSON : FOR_PEOPLE | FOR_JSON);
    results_say(r, 0, "%s", "");
    results_say(r, 15, "parameters     %lld (%s as floats)", (long long)parameters,
                text_bytes(text, sizeof text, (double)parameters * (double)sizeof(float)));
    results_say(r, 15, "forward FLOPs  %s (batch %lld; a multiply-add is two)",
                text_count(text, sizeof text, graph_flops(g)), (long long)g->batch);
    results_say(r, 15, "activations    %s (every output once, as floats)",
                text_bytes(text, sizeof text, (double)activations));
}

/* ---- the command ---- */

static enum status parse(int argc, char **argv, struct show_options *o, bool *help)
{
    *o = (struct show_options){0};
    const struct option options[] = {
        OPTION_TEXT("--data", "SPEC", &o->data, NULL,
                    "the data that decides input shape, classes and variant; also the bare names "
                    "mnist, cifar10, imagenet, highres, imagenet22k [fashion-mnist for mlp and "
                    "lenet5, imagenet for others]"),
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
    TRY(subject_settle_data(o.model, &o.data));
    TRY(subject_build(o.model, o.data, o.batch, -1, &info, &g));
    struct results r;
    enum status st = results_open(&r, o.json, NULL);
    report(g, &info, o.loops, &r);
    graph_destroy(g);
    return results_close(&r, st);
}
