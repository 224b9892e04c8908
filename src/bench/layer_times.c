/* layer_times.c: where the time of a training step goes, by layer and by layer type. */
#include "bench/layer_times.h"

#include "base/log.h"
#include "base/numbers.h"
#include "base/progress.h"
#include "bench/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LAYER_PASSES = 3 }; /* forward, gradient of the data, gradient of the weights */

/* One group of the program. Ops that compute all gradients at once, and sums of gradients, count as
 * gradients of the data. */
struct layer_result {
    const char *name, *op; /* op: "conv2d+relu" */
    enum op_kind kind;     /* of the op that others are folded into */
    double pass_s[LAYER_PASSES];
    double flops[LAYER_PASSES];
    double update_s; /* of its parameters */
};

struct batch_result {
    int64_t batch;
    double step_s; /* sum of all instructions */
    int n_layers;
    struct layer_result *layers;
    double type_s[TYPE_COUNT];
};

struct layer_study {
    arena *memory;
    struct bench_peak peak;
    int n_batches;
    struct batch_result batches[BENCH_MAX_BATCHES];
    const struct batch_result *largest;
};

const char *layer_type_name(int type)
{
    static const char *const own_names[] = {[TYPE_UPDATE - OP_KIND_COUNT] = "update",
                                            [TYPE_LOAD - OP_KIND_COUNT] = "load",
                                            [TYPE_MOVE - OP_KIND_COUNT] = "move"};
    return type < OP_KIND_COUNT ? op_get_info((enum op_kind)type)->name
                                : own_names[type - OP_KIND_COUNT];
}

int layer_instr_type(const struct program *p, int i)
{
    const struct instr *instr = &p->instrs[i];
    if (instr->kind == INSTR_LOAD)
        return TYPE_LOAD;
    if (instr->kind == INSTR_UPDATE)
        return TYPE_UPDATE;
    if (instr->group < 0 || (instr->kind != INSTR_RUN && instr->kind != INSTR_FOLD))
        return TYPE_MOVE;
    return (int)p->graph->nodes[p->groups[instr->group].first_node].op.op;
}

static double seconds_of(const struct layer_result *l)
{
    return l->pass_s[0] + l->pass_s[1] + l->pass_s[2];
}

static double flops_of(const struct layer_result *l)
{
    return l->flops[0] + l->flops[1] + l->flops[2];
}

static double rate(const struct layer_result *l)
{
    double s = seconds_of(l);
    return s > 0 ? flops_of(l) / s : 0;
}

/* ---- timing ---- */

/* The median of every instruction over `repeat` steps, into medians_ns[]. */
static enum status time_instructions(struct bench_run *r, int64_t repeat, int64_t *medians_ns)
{
    size_t n = (size_t)r->program->n_instrs, n_steps = (size_t)repeat;
    /* samples[i * n_steps + step], so that one instruction's times lie together */
    int64_t *samples = calloc(n * n_steps, sizeof *samples);
    if (!samples)
        return status_no_memory(n * n_steps * sizeof *samples);
    enum status st = STATUS_OK;
    int64_t t_ns;
    double loss;
    executor_time_instructions(r->executor, medians_ns);
    for (size_t step = 0; step < n_steps; step++) {
        memset(medians_ns, 0, n * sizeof *medians_ns);
        TRY_GOTO(st, bench_run_step(r, &t_ns, &loss), out);
        for (size_t i = 0; i < n; i++)
            samples[i * n_steps + step] = medians_ns[i];
    }
    for (size_t i = 0; i < n; i++)
        medians_ns[i] = (int64_t)numbers_median_ns(&samples[i * n_steps], repeat);
out:
    executor_time_instructions(r->executor, NULL);
    free(samples);
    return st;
}

/* ---- from instructions to layers ---- */

static void add_flops(const struct graph_node *node, const struct group_spec *spec,
                      struct layer_result *l)
{
    struct op_cost cost;
    op_get_cost(&node->op, &cost);
    l->flops[0] += cost.forward_flops;
    l->flops[1] += spec->input_gradient ? cost.data_gradient_flops : 0;
    l->flops[2] += cost.weight_gradient_flops;
}

/* A group is an op, then perhaps a sum, then perhaps an activation; from the last, its input leads
 * back to the sum. */
static enum status describe_layer(const struct graph *g, const struct program_group *from,
                                  arena *memory, struct layer_result *l)
{
    const struct graph_node *first = &g->nodes[from->first_node];
    const struct graph_node *last = &g->nodes[from->last_node];
    bool activated = from->spec.activation != ACTIVATION_NONE;
    l->kind = first->op.op;
    add_flops(first, &from->spec, l);
    if (from->spec.residual)
        add_flops(activated ? &g->nodes[last->input[0]] : last, &from->spec, l);
    if (activated)
        add_flops(last, &from->spec, l);
    TRY(arena_copy_text(memory, from->name, &l->name));
    return arena_print(memory, &l->op, "%s%s%s%s", op_get_info(l->kind)->name,
                       from->spec.residual ? "+add" : "", activated ? "+" : "",
                       activated ? op_get_info(last->op.op)->name : "");
}

static int group_of_node(const struct program *p, int node)
{
    for (int i = 0; i < p->n_groups; i++)
        if (p->groups[i].first_node == node)
            return i;
    return 0;
}

static void add_instruction(const struct program *p, int i, double seconds,
                            struct batch_result *out)
{
    const struct instr *instr = &p->instrs[i];
    int type = layer_instr_type(p, i);
    static const int pass_column[PASS_COUNT] = {
        [PASS_FORWARD] = 0,          [PASS_BACKWARD] = 1,           [PASS_BACKWARD_DATA] = 1,
        [PASS_BACKWARD_WEIGHTS] = 2, [PASS_FORWARD_STATISTICS] = 0, [PASS_BACKWARD_STATISTICS] = 1};
    out->step_s += seconds;
    out->type_s[type] += seconds;
    if (type == TYPE_UPDATE)
        out->layers[group_of_node(p, p->graph->params[instr->param].node)].update_s += seconds;
    else if (type < OP_KIND_COUNT)
        out->layers[instr->group].pass_s[instr->kind == INSTR_RUN ? pass_column[instr->pass] : 1] +=
            seconds;
}

static enum status gather(const struct program *p, const int64_t *times_ns, arena *memory,
                          struct batch_result *out)
{
    out->n_layers = p->n_groups;
    TRY(arena_alloc_array(memory, (size_t)p->n_groups, sizeof *out->layers, &out->layers));
    for (int i = 0; i < p->n_groups; i++)
        TRY(describe_layer(p->graph, &p->groups[i], memory, &out->layers[i]));
    for (int i = 0; i < p->n_instrs; i++)
        add_instruction(p, i, (double)times_ns[i] * 1e-9, out);
    return STATUS_OK;
}

static enum status measure_batch(const struct bench_device *d, const struct bench_layers *s,
                                 arena *memory, struct batch_result *out)
{
    struct bench_run run;
    TRY(bench_run_open(d, s->model, s->data, out->batch, &run));
    enum status st;
    int64_t t_ns, *times_ns = calloc((size_t)run.program->n_instrs, sizeof *times_ns);
    double loss;
    if (!times_ns) {
        st = status_no_memory((size_t)run.program->n_instrs * sizeof *times_ns);
        goto out;
    }
    TRY_GOTO(st, bench_run_step(&run, &t_ns, &loss), out); /* warm-up */
    TRY_GOTO(st, time_instructions(&run, s->repeat, times_ns), out);
    TRY_GOTO(st, gather(run.program, times_ns, memory, out), out);
out:
    free(times_ns);
    bench_run_close(&run);
    return st;
}

static enum status measure(const struct bench_device *d, const struct bench_layers *s,
                           struct layer_study *out)
{
    double all = 0, done = 0; /* images: larger batches take longer */
    struct progress progress = {0};
    for (int i = 0; i < s->batches.n; i++)
        all += (double)s->batches.sizes[i];
    log_progress("measuring the peak");
    TRY(bench_peak_measure(d, &out->peak));
    out->largest = &out->batches[0];
    for (; out->n_batches < s->batches.n; out->n_batches++) {
        struct batch_result *b = &out->batches[out->n_batches];
        b->batch = s->batches.sizes[out->n_batches];
        progress_show(&progress, done / all, "measuring batch %lld", (long long)b->batch);
        done += (double)b->batch;
        TRY(measure_batch(d, s, out->memory, b));
        if (b->batch > out->largest->batch)
            out->largest = b;
    }
    log_progress_end();
    return STATUS_OK;
}

/* ---- layers ---- */

static void report_layers(const struct layer_study *s, const struct batch_result *b,
                          struct results *r)
{
    static const struct field fields[] = {{"layer", "name", NULL, 0, 10},
                                          {"op", NULL, NULL, 0, 10},
                                          HIDDEN("op"),
                                          {"forward", "forward_s", "-%.3f", 1e3, 0},
                                          {"data", "backward_data_s", "-%.3f", 1e3, 0},
                                          {"weights", "backward_weights_s", "-%.3f", 1e3, 0},
                                          HIDDEN("update_s"),
                                          HIDDEN("forward_flops"),
                                          HIDDEN("backward_data_flops"),
                                          HIDDEN("backward_weights_flops"),
                                          {"FLOPs", NULL, "count", 0, 0},
                                          {"GFLOP/s", "flops_per_s", "%.1f", 1e-9, 0},
                                          {"% peak", "share_of_peak", "%.0f", 100, 0},
                                          {0}};
    results_say(r, 0, "%s", "");
    results_say(r, 0, "Batch %lld, milliseconds of forward and gradients of data and weights",
                (long long)b->batch);
    results_say(r, 0, "%s", "");
    results_table(r, "layers", fields, FOR_PEOPLE | FOR_JSON);
    for (int i = 0; i < b->n_layers; i++) {
        const struct layer_result *l = &b->layers[i];
        RESULTS_ROW(r, v_text(l->name), v_text(layer_type_name((int)l->kind)), v_text(l->op),
                    v_real(l->pass_s[0]), v_real(l->pass_s[1]), v_real(l->pass_s[2]),
                    v_real(l->update_s), v_real(l->flops[0]), v_real(l->flops[1]),
                    v_real(l->flops[2]), v_real(flops_of(l)), v_real(rate(l)),
                    v_real(rate(l) / s->peak.flops_per_s));
    }
    results_table_end(r);
}

/* ---- layer types ---- */

static bool type_is_there(const struct layer_study *s, int type)
{
    for (int i = 0; i < s->n_batches; i++)
        if (s->batches[i].type_s[type] > 0)
            return true;
    return false;
}

/* With the largest batch over this one; 0 if it takes none. */
static double speedup(const struct layer_study *s, int type, const struct batch_result *b)
{
    return b->type_s[type] > 0 ? s->largest->type_s[type] / b->type_s[type] : 0;
}

static double ideal_speedup(const struct layer_study *s, const struct batch_result *b)
{
    return (double)s->largest->batch / (double)b->batch;
}

static void report_types(const struct layer_study *s, const struct batch_result *b,
                         struct results *r)
{
    static const struct field fields[] = {
        HIDDEN("type"), HIDDEN("seconds"), HIDDEN("share_of_step"), HIDDEN("speedup"), {0}};
    results_table(r, "types", fields, FOR_JSON);
    for (int type = 0; type < TYPE_COUNT; type++)
        if (type_is_there(s, type))
            RESULTS_ROW(r, v_text(layer_type_name(type)), v_real(b->type_s[type]),
                        v_real(b->type_s[type] / b->step_s), v_real(speedup(s, type, b)));
    results_table_end(r);
}

/* For people: batches side by side. Rows of types, then of the step, and of the speed-up that there
 * would be if all of it shrank with the batch. */
enum type_figure { TYPE_TIME, TYPE_SHARE, TYPE_SPEEDUP };
enum { ROW_STEP = TYPE_COUNT, ROW_IDEAL };

static double type_figure(const struct layer_study *s, enum type_figure figure, int row,
                          const struct batch_result *b)
{
    double of_s = row == ROW_STEP ? b->step_s : row < TYPE_COUNT ? b->type_s[row] : 0;
    if (figure == TYPE_TIME)
        return of_s * 1e3;
    if (figure == TYPE_SHARE)
        return 100 * of_s / b->step_s;
    if (row == ROW_IDEAL)
        return ideal_speedup(s, b);
    return row == ROW_STEP ? s->largest->step_s / b->step_s : speedup(s, row, b);
}

static void compare_types(const struct layer_study *s, enum type_figure figure, struct results *r)
{
    static const char *const titles[] = {"Milliseconds by layer type and batch",
                                         "Share of the step, in percent",
                                         "Speed-up from shrinking the largest batch"};
    char names[BENCH_MAX_BATCHES][24];
    struct field fields[BENCH_MAX_BATCHES + 2] = {{"type", NULL, NULL, 0, 12}};
    for (int i = 0; i < s->n_batches; i++) {
        (void)snprintf(names[i], sizeof names[i], "%lld", (long long)s->batches[i].batch);
        fields[i + 1] =
            (struct field){names[i], NULL, figure == TYPE_SHARE ? "%.1f" : "%.2f", 0, 0};
    }
    results_say(r, 0, "%s", "");
    results_say(r, 0, "%s", titles[figure]);
    results_say(r, 0, "%s", "");
    results_table(r, NULL, fields, FOR_PEOPLE);
    for (int row = 0; row <= (figure == TYPE_SPEEDUP ? ROW_IDEAL : ROW_STEP); row++) {
        struct value values[BENCH_MAX_BATCHES + 1];
        if (row < TYPE_COUNT && !type_is_there(s, row))
            continue;
        if (row == ROW_STEP)
            results_rule(r);
        values[0] = v_text(row < TYPE_COUNT  ? layer_type_name(row)
                           : row == ROW_STEP ? "step"
                                             : "ideal");
        for (int i = 0; i < s->n_batches; i++)
            values[i + 1] = v_real(type_figure(s, figure, row, &s->batches[i]));
        results_row(r, values);
    }
    results_table_end(r);
}

/* ---- CSV ---- */

/* One table for layers and types; a row leaves the fields of the other kind empty. */
static void report_csv(const struct layer_study *s, struct results *r)
{
    static const struct field fields[] = {HIDDEN("level"),
                                          HIDDEN("batch"),
                                          HIDDEN("name"),
                                          HIDDEN("op"),
                                          HIDDEN("seconds"),
                                          HIDDEN("forward_s"),
                                          HIDDEN("backward_data_s"),
                                          HIDDEN("backward_weights_s"),
                                          HIDDEN("update_s"),
                                          HIDDEN("forward_flops"),
                                          HIDDEN("backward_data_flops"),
                                          HIDDEN("backward_weights_flops"),
                                          HIDDEN("flops_per_s"),
                                          HIDDEN("share_of_peak"),
                                          HIDDEN("share_of_step"),
                                          HIDDEN("speedup"),
                                          {0}};
    enum { N_FIELDS = sizeof fields / sizeof *fields - 1, FIRST_FIGURE = 4 };
    results_table(r, NULL, fields, FOR_CSV);
    for (const struct batch_result *b = s->batches; b < s->batches + s->n_batches; b++) {
        for (int i = 0; i < b->n_layers; i++) {
            const struct layer_result *l = &b->layers[i];
            results_row(r, (struct value[N_FIELDS]){
                               v_text("layer"), v_int(b->batch), v_text(l->name), v_text(l->op),
                               v_real(seconds_of(l) + l->update_s), v_real(l->pass_s[0]),
                               v_real(l->pass_s[1]), v_real(l->pass_s[2]), v_real(l->update_s),
                               v_real(l->flops[0]), v_real(l->flops[1]), v_real(l->flops[2]),
                               v_real(rate(l)), v_real(rate(l) / s->peak.flops_per_s)});
        }
        for (int type = 0; type < TYPE_COUNT; type++)
            if (type_is_there(s, type))
                results_row(r, (struct value[N_FIELDS]){
                                   [0] = v_text("type"),
                                   [1] = v_int(b->batch),
                                   [2] = v_text(layer_type_name(type)),
                                   [FIRST_FIGURE] = v_real(b->type_s[type]),
                                   [N_FIELDS - 2] = v_real(b->type_s[type] / b->step_s),
                                   [N_FIELDS - 1] = v_real(speedup(s, type, b))});
    }
    results_table_end(r);
}

/* ---- all of it ---- */

static void report(const struct bench_layers *o, const struct bench_device *d,
                   const struct layer_study *s, struct results *r)
{
    int threads = d->backend->device_threads(d->device);
    results_put(r, "model", v_text(o->model));
    results_put(r, "data", v_text(o->data));
    bench_put_device(r, d);
    results_put(r, "peak_flops_per_s", v_real(s->peak.flops_per_s));
    results_say(r, 2, "%s for %s on %s (%s), %d thread%s; peak %.1f GFLOP/s (product of size %lld)",
                o->model, o->data, d->backend->name, d->backend->device_describe(d->device),
                threads, threads == 1 ? "" : "s", s->peak.flops_per_s * 1e-9,
                (long long)s->peak.size);
    for (const struct batch_result *b = s->batches; b < s->batches + s->n_batches; b++) {
        results_enter(r);
        results_put(r, "batch", v_int(b->batch));
        results_put(r, "step_s", v_real(b->step_s));
        results_put(r, "ideal_speedup", v_real(ideal_speedup(s, b)));
        report_layers(s, b, r);
        report_types(s, b, r);
        results_leave(r, "batches", true);
    }
    compare_types(s, TYPE_TIME, r);
    compare_types(s, TYPE_SHARE, r);
    if (s->n_batches > 1)
        compare_types(s, TYPE_SPEEDUP, r);
    results_say(r, 0, "%s", "");
    results_say(r, 0, "Activations and sums count with the layer that they are folded into.");
    report_csv(s, r);
}

enum status bench_layers(const struct bench_layers *o, struct results *r)
{
    struct layer_study s = {0};
    struct bench_device d;
    TRY(bench_device_open(&o->backend, &d));
    enum status st;
    TRY_GOTO(st, arena_create(&s.memory), out);
    TRY_GOTO(st, measure(&d, o, &s), out);
    report(o, &d, &s, r);
out:
    arena_destroy(s.memory);
    bench_device_close(&d);
    return st;
}
