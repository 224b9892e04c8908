#include "program/program.h"

#include "program/lowering.h"

#include <assert.h>
#include <string.h>

static const char *const class_names[] = {
    [BUFFER_WEIGHTS] = "weights",         [BUFFER_WEIGHT_VERSIONS] = "weight_versions",
    [BUFFER_OPTIMIZER] = "optimizer",     [BUFFER_GRADIENTS] = "gradients",
    [BUFFER_ACTIVATIONS] = "activations", [BUFFER_TRANSFER] = "transfer",
    [BUFFER_WORKSPACE] = "workspace",
};
static_assert(sizeof class_names / sizeof class_names[0] == BUFFER_CLASS_COUNT, "a name each");

static const char *const pass_names[] = {
    [PASS_FORWARD] = "forward",
    [PASS_BACKWARD] = "backward",
    [PASS_BACKWARD_DATA] = "backward_data",
    [PASS_BACKWARD_WEIGHTS] = "backward_weights",
    [PASS_FORWARD_STATISTICS] = "forward_statistics",
    [PASS_BACKWARD_STATISTICS] = "backward_statistics",
};
static_assert(sizeof pass_names / sizeof pass_names[0] == PASS_COUNT, "a name each");

static const char *const kind_names[] = {
    [INSTR_LOAD] = "load",       [INSTR_RUN] = "run",       [INSTR_FOLD] = "fold",
    [INSTR_COPY] = "copy",       [INSTR_CLEAR] = "clear",   [INSTR_ACCUMULATE] = "accumulate",
    [INSTR_STASH] = "stash",     [INSTR_UPDATE] = "update", [INSTR_SEND] = "send",
    [INSTR_RECEIVE] = "receive", [INSTR_REDUCE] = "reduce",
};
static_assert(sizeof kind_names / sizeof kind_names[0] == INSTR_KIND_COUNT, "a name each");

const char *buffer_class_name(enum buffer_class class)
{
    return class_names[class];
}

/* ---- the plan of one worker, where none is given ---- */

static enum status make_serial_plan(const struct graph *graph, struct plan **out)
{
    static const int first[1] = {0};
    arena *memory;
    TRY(arena_create(&memory));
    enum status st;
    struct plan *plan;
    TRY_GOTO(st, arena_alloc(memory, sizeof *plan, &plan), fail);
    *plan = (struct plan){.memory = memory,
                          .name = "serial",
                          .n_workers = 1,
                          .n_stages = 1,
                          .n_layers = graph->n_nodes,
                          .micro_batches = 1,
                          .schedule = PLAN_1F1B,
                          .window = 1};
    TRY_GOTO(st, arena_alloc(memory, sizeof *plan->stages, &plan->stages), fail);
    plan->stages[0] = (struct plan_stage){1, first};
    TRY_GOTO(st,
             arena_alloc_array(memory, (size_t)graph->n_nodes, sizeof *plan->layers, &plan->layers),
             fail);
    for (int i = 0; i < graph->n_nodes; i++)
        plan->layers[i] = (struct plan_layer){.n_pieces = 1, .workers = first};
    *out = plan;
    return STATUS_OK;
fail:
    arena_destroy(memory);
    return st;
}

/* ---- creating ---- */

static enum status start(const struct lowering *given, arena *memory, struct program **out)
{
    const struct program_options *o = given->options;
    TRY(arena_alloc(memory, sizeof **out, out));
    **out = (struct program){.memory = memory,
                             .graph = given->analysis->graph,
                             .plan = given->analysis->plan,
                             .n_micros = given->analysis->n_micros,
                             .n_steps = given->analysis->n_steps,
                             .worker = given->worker,
                             .backend = o->backend,
                             .device = o->device,
                             .transport = o->transport,
                             .precision = o->precision,
                             .training = o->training,
                             .n_states = o->n_states};
    return STATUS_OK;
}

static enum status emit_and_place(struct program *p, const struct lowering *given)
{
    TRY(lowering_emit(p, given));
    lowering_find_live_ranges(p);
    arena_reset(given->memory->scratch);
    TRY(lowering_place_buffers(p, given));
    arena_reset(given->memory->scratch);
    return STATUS_OK;
}

enum status lowering_create(const struct lowering *given, struct program **out)
{
    struct program *p = NULL;
    enum status st;
    arena *memory;
    TRY(arena_create(&memory));
    TRY_GOTO(st, start(given, memory, &p), fail);
    TRY_GOTO(st, emit_and_place(p, given), fail);
    TRY_GOTO(st, lowering_find_waits(p, given), fail);
    arena_reset(given->memory->scratch);
    TRY_GOTO(st, arrays_keep(&given->memory->arrays, p), fail);
    *out = p;
    return STATUS_OK;
fail:
    program_destroy(p);
    if (!p)
        arena_destroy(memory);
    return st;
}

static enum status create_one(const struct graph *graph, const struct program_options *options,
                              const struct plan *plan, struct program **out)
{
    struct analysis *a = NULL;
    struct lowering_memory *memory = NULL;
    enum status st;
    TRY_GOTO(st, analysis_create(graph, plan, options->training, options->n_steps, &a), out);
    TRY_GOTO(st, lowering_open_memory(1, &memory), out);
    struct lowering given = {.analysis = a,
                             .options = options,
                             .worker = options->worker,
                             .shares = options->shares_params_of,
                             .memory = memory};
    TRY_GOTO(st, lowering_create(&given, out), out);
out:
    lowering_close_memory(memory, 1);
    analysis_destroy(a);
    return st;
}

enum status program_create(const struct graph *graph, const struct program_options *options,
                           struct program **out)
{
    struct plan *serial = NULL;
    if (options->plan)
        return create_one(graph, options, options->plan, out);
    TRY(make_serial_plan(graph, &serial));
    enum status st = create_one(graph, options, serial, out);
    if (st == STATUS_OK)
        (*out)->own_plan = serial;
    else
        plan_destroy(serial);
    return st;
}

static void destroy_groups(struct program *p)
{
    for (int i = 0; i < p->n_groups; i++)
        if (p->groups[i].kernels)
            p->backend->group_destroy(p->groups[i].kernels);
}

enum status lowering_measure(const struct lowering *given, int64_t slab_bytes[BUFFER_CLASS_COUNT])
{
    struct program *p;
    TRY(start(given, given->memory->program, &p));
    enum status st = emit_and_place(p, given);
    memcpy(slab_bytes, p->slab_bytes, sizeof p->slab_bytes);
    destroy_groups(p);
    arena_reset(given->memory->program);
    return st;
}

void program_destroy(struct program *p)
{
    if (!p)
        return;
    destroy_groups(p);
    if (p->own_plan)
        arena_destroy(p->own_plan->memory);
    arena_destroy(p->memory);
}

/* ---- what it holds and sends ---- */

int64_t program_memory_bytes(const struct program *p)
{
    int64_t total = 0;
    for (int i = 0; i < BUFFER_CLASS_COUNT; i++)
        total += p->slab_bytes[i];
    return total;
}

/* Members are in ascending order. */
static int position_of(const struct comm_reduction *r, int worker)
{
    int low = 0, high = r->n_members - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (r->members[middle] < worker)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int64_t program_sent_bytes_by(const struct program *p, int worker)
{
    int64_t total = 0;
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *instr = &p->instrs[i];
        if (instr->kind == INSTR_SEND)
            total += p->messages[instr->index].n_bytes;
        if (instr->kind != INSTR_REDUCE)
            continue;
        const struct comm_reduction *r = &p->reductions[instr->index].spec;
        total += comm_reduce_sent_bytes(r, position_of(r, worker));
    }
    return total;
}

int64_t program_sent_bytes(const struct program *p)
{
    return program_sent_bytes_by(p, p->worker);
}

/* ---- for people ---- */

/* The group, parameter or buffer that the instruction works on. */
static const char *subject(const struct program *p, const struct instr *instr)
{
    if (instr->kind == INSTR_LOAD)
        return "batch";
    if (instr->param >= 0)
        return p->graph->params[instr->param].name;
    if (instr->group >= 0)
        return p->groups[instr->group].name;
    int buffer = instr->n_writes ? instr->writes[0] : instr->reads[0];
    return p->buffers[buffer].name;
}

const char *program_instr_text(const struct program *p, int i, char *buffer, size_t size)
{
    const struct instr *instr = &p->instrs[i];
    const char *verb = instr->kind == INSTR_RUN ? pass_names[instr->pass] : kind_names[instr->kind];
    char peer[48] = "", micro[32] = "";
    if (instr->kind == INSTR_SEND || instr->kind == INSTR_RECEIVE)
        (void)snprintf(peer, sizeof peer,
                       instr->kind == INSTR_SEND ? " to worker %d" : " from worker %d",
                       p->messages[instr->index].peer);
    if (instr->kind == INSTR_REDUCE)
        (void)snprintf(peer, sizeof peer, " over %d workers",
                       p->reductions[instr->index].spec.n_members);
    if (instr->micro >= 0 && p->n_micros * p->n_steps > 1)
        (void)snprintf(micro, sizeof micro, " of micro-batch %d", instr->micro);
    (void)snprintf(buffer, size, "%s %s%s%s", verb, subject(p, instr), peer, micro);
    return buffer;
}

static void dump_list(FILE *out, const char *what, int n, const int *numbers)
{
    if (n == 0)
        return;
    (void)fprintf(out, " %s", what);
    for (int k = 0; k < n; k++)
        (void)fprintf(out, "%c%d", k ? ',' : ' ', numbers[k]);
}

static void dump_instr(const struct program *p, int i, FILE *out)
{
    char text[160];
    const struct instr *instr = &p->instrs[i];
    (void)fprintf(out, "instr %d %s %s", i,
                  instr->stream == STREAM_COMPUTE ? "compute" : "communicate",
                  program_instr_text(p, i, text, sizeof text));
    if (instr->kind == INSTR_SEND || instr->kind == INSTR_RECEIVE)
        (void)fprintf(out, " tag %lld bytes %lld", (long long)p->messages[instr->index].tag,
                      (long long)p->messages[instr->index].n_bytes);
    if (instr->kind == INSTR_REDUCE) {
        const struct comm_reduction *r = &p->reductions[instr->index].spec;
        (void)fprintf(out, " %s tag %lld count %lld", comm_method_name(r->method),
                      (long long)r->tag, (long long)r->count);
        dump_list(out, "members", r->n_members, r->members);
    }
    dump_list(out, "reads", instr->n_reads, instr->reads);
    dump_list(out, "writes", instr->n_writes, instr->writes);
    dump_list(out, "waits", instr->n_waits, instr->waits);
    (void)fprintf(out, "\n");
}

void program_dump(const struct program *p, FILE *out)
{
    (void)fprintf(
        out, "program %s batch %lld %s worker %d of %d plan %s steps %d micro-batches %d\n",
        p->graph->name, (long long)p->graph->batch, p->training ? "training" : "evaluation",
        p->worker, p->plan->n_workers, p->plan->name, p->n_steps, p->n_micros);
    for (int i = 0; i < BUFFER_CLASS_COUNT; i++)
        (void)fprintf(out, "slab %s %lld bytes\n", class_names[i], (long long)p->slab_bytes[i]);
    for (int i = 0; i < p->n_buffers; i++) {
        const struct buffer *b = &p->buffers[i];
        (void)fprintf(out, "buffer %d %s offset %lld bytes %lld live %d..%d %s\n", i,
                      class_names[b->class], (long long)b->offset, (long long)b->n_bytes,
                      b->first_write, b->last_use, b->name);
    }
    for (int i = 0; i < p->n_instrs; i++)
        dump_instr(p, i, out);
}
