#include "base/log.h"
#include "base/progress.h"
#include "cli/bench_layers.h"

#include <stdlib.h>
#include <string.h>

static const char *const own_type_names[] = {[TYPE_UPDATE - OP_KIND_COUNT] = "update",
                                             [TYPE_LOAD - OP_KIND_COUNT] = "load",
                                             [TYPE_MOVE - OP_KIND_COUNT] = "move"};

const char *layer_type_name(int type)
{
    return type < OP_KIND_COUNT ? op_get_info((enum op_kind)type)->name
                                : own_type_names[type - OP_KIND_COUNT];
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

double layer_seconds(const struct layer_result *l)
{
    return l->pass_s[0] + l->pass_s[1] + l->pass_s[2];
}

double layer_flops(const struct layer_result *l)
{
    return l->flops[0] + l->flops[1] + l->flops[2];
}

static const struct batch_result *largest_batch(const struct layer_study *s)
{
    const struct batch_result *largest = &s->batches[0];
    for (int i = 1; i < s->n_batches; i++)
        if (s->batches[i].batch > largest->batch)
            largest = &s->batches[i];
    return largest;
}

double layer_study_speedup(const struct layer_study *s, int type, int i)
{
    double here = s->batches[i].type_s[type];
    return here > 0 ? largest_batch(s)->type_s[type] / here : 0;
}

double layer_study_step_speedup(const struct layer_study *s, int i)
{
    return largest_batch(s)->step_s / s->batches[i].step_s;
}

double layer_study_ideal(const struct layer_study *s, int i)
{
    return (double)largest_batch(s)->batch / (double)s->batches[i].batch;
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
        medians_ns[i] = bench_median(&samples[i * n_steps], repeat);
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

static enum status measure_batch(const struct bench_device *d, const char *model, const char *data,
                                 int64_t repeat, arena *memory, struct batch_result *out)
{
    struct bench_run run;
    TRY(bench_run_open(d, model, data, out->batch, &run));
    enum status st;
    int64_t t_ns, *times_ns = calloc((size_t)run.program->n_instrs, sizeof *times_ns);
    double loss;
    if (!times_ns) {
        st = status_no_memory((size_t)run.program->n_instrs * sizeof *times_ns);
        goto out;
    }
    TRY_GOTO(st, bench_run_step(&run, &t_ns, &loss), out); /* warm-up */
    TRY_GOTO(st, time_instructions(&run, repeat, times_ns), out);
    TRY_GOTO(st, gather(run.program, times_ns, memory, out), out);
out:
    free(times_ns);
    bench_run_close(&run);
    return st;
}

enum status layer_study_measure(const struct bench_device *d, const char *model, const char *data,
                                const int64_t *batches, int n_batches, int64_t repeat,
                                arena *memory, struct layer_study *out)
{
    *out = (struct layer_study){.model = model,
                                .data = data,
                                .backend = d->backend->name,
                                .device = d->backend->device_describe(d->device),
                                .threads = d->backend->device_threads(d->device),
                                .n_batches = n_batches};
    double all = 0, done = 0; /* images: larger batches take longer */
    struct progress progress = {0};
    for (int i = 0; i < n_batches; i++)
        all += (double)batches[i];
    log_progress("measuring the peak");
    TRY(bench_peak_measure(d, &out->peak));
    for (int i = 0; i < n_batches; i++) {
        progress_show(&progress, done / all, "measuring batch %lld", (long long)batches[i]);
        done += (double)batches[i];
        out->batches[i].batch = batches[i];
        TRY(measure_batch(d, model, data, repeat, memory, &out->batches[i]));
    }
    log_progress_end();
    return STATUS_OK;
}
