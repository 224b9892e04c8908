#include "program/program.h"

#include "base/parallel.h"
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

/* ---- one worker, when nobody gave a plan ---- */

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

static enum status place(struct program *p, const struct lowering *given)
{
    p->n_micros = given->work->n_micros;
    p->n_steps = given->work->n_steps;
    TRY(lowering_emit(p, given));
    lowering_find_live_ranges(p);
    arena_reset(given->scratch);
    return lowering_place_buffers(p, given);
}

static enum status lower(struct program *p, const struct lowering *given)
{
    TRY(place(p, given));
    arena_reset(given->scratch);
    TRY(lowering_find_waits(p, given));
    arena_reset(given->scratch);
    return tables_keep(given->tables, p);
}

static enum status start(const struct lowering *given, const struct program_options *options,
                         int worker, arena *memory, struct program **out)
{
    TRY(arena_alloc(memory, sizeof **out, out));
    **out = (struct program){.memory = memory,
                             .graph = given->work->graph,
                             .backend = options->backend,
                             .device = options->device,
                             .plan = given->work->plan,
                             .worker = worker,
                             .transport = options->transport,
                             .training = options->training,
                             .n_states = options->n_states};
    return STATUS_OK;
}

static enum status create(const struct lowering *given, const struct program_options *options,
                          int worker, struct program **out)
{
    arena *memory;
    TRY(arena_create(&memory));
    struct program *p;
    enum status st = start(given, options, worker, memory, &p);
    if (st != STATUS_OK) {
        arena_destroy(memory);
        return st;
    }
    st = lower(p, given);
#ifndef NDEBUG
    if (st == STATUS_OK)
        st = program_check(p);
#endif
    if (st != STATUS_OK) {
        program_destroy(p);
        return st;
    }
    *out = p;
    return STATUS_OK;
}

static enum status create_one(const struct graph *graph, const struct program_options *options,
                              const struct plan *plan, struct program **out)
{
    struct groundwork *work = NULL;
    struct tables tables = {0};
    struct lowering given = {.shares = options->shares_params_of, .tables = &tables};
    enum status st;
    TRY_GOTO(st, groundwork_create(graph, plan, options->training, options->n_steps, &work), out);
    given.work = work;
    TRY_GOTO(st, arena_create(&given.scratch), out);
    TRY_GOTO(st, create(&given, options, options->worker, out), out);
out:
    tables_deinit(&tables);
    arena_destroy(given.scratch);
    groundwork_destroy(work);
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

void program_destroy(struct program *p)
{
    if (!p)
        return;
    destroy_groups(p);
    if (p->own_plan)
        arena_destroy(p->own_plan->memory);
    arena_destroy(p->memory);
}

/* ---- all workers ----
 *
 * Each worker is lowered by itself, so several are at the same time, where the backend lets its
 * device be asked by several threads. */

/* What a thread needs for itself. */
struct room {
    struct tables tables;
    arena *scratch, *memory; /* memory: of a program that is not kept */
};

struct workshop {
    const struct groundwork *work;
    const struct program_options *options;
    const struct program_set *shares;
    int n_items, *items; /* workers that are lowered: the lowest of their twins */
    int n_rooms;
    struct room *rooms;
    struct program **programs;                 /* where they go, by worker; or */
    int64_t (*slab_bytes)[BUFFER_CLASS_COUNT]; /* what is wanted of them, */
    int64_t (*enough)[BUFFER_CLASS_COUNT];     /* where it is more than this; of each one's twins */
};

static enum status find_twins(const struct groundwork *work, bool twins, arena *memory, int **out)
{
    if (twins)
        return groundwork_find_twins(work, memory, out);
    TRY(arena_alloc_array(memory, (size_t)work->plan->n_workers, sizeof **out, out));
    for (int i = 0; i < work->plan->n_workers; i++)
        (*out)[i] = i;
    return STATUS_OK;
}

static enum status list_items(struct workshop *s, const int *twin_of)
{
    int n = s->work->plan->n_workers;
    TRY(arena_alloc_array(s->work->memory, (size_t)n, sizeof *s->items, &s->items));
    for (int i = 0; i < n; i++)
        if (twin_of[i] == i)
            s->items[s->n_items++] = i;
    s->n_rooms = s->options->backend->describes_together ? parallel_threads(s->n_items) : 1;
    TRY(arena_alloc_array(s->work->memory, (size_t)s->n_rooms, sizeof *s->rooms, &s->rooms));
    for (int i = 0; i < s->n_rooms; i++) {
        TRY(arena_create(&s->rooms[i].scratch));
        TRY(arena_create(&s->rooms[i].memory));
    }
    return STATUS_OK;
}

static void close_workshop(struct workshop *s)
{
    for (int i = 0; s->rooms && i < s->n_rooms; i++) {
        tables_deinit(&s->rooms[i].tables);
        arena_destroy(s->rooms[i].scratch);
        arena_destroy(s->rooms[i].memory);
    }
}

static struct lowering lowering_in(const struct workshop *s, struct room *room, int worker)
{
    return (struct lowering){.work = s->work,
                             .shares = s->shares ? s->shares->programs[worker] : NULL,
                             .tables = &room->tables,
                             .scratch = room->scratch};
}

static enum status create_item(void *user, int item, int thread)
{
    const struct workshop *s = user;
    int worker = s->items[item];
    struct lowering given = lowering_in(s, &s->rooms[thread], worker);
    return create(&given, s->options, worker, &s->programs[worker]);
}

static enum status create_set(const struct groundwork *work, const struct program_options *options,
                              const struct program_set *shares, bool twins, struct program_set *set)
{
    struct workshop s = {.work = work, .options = options, .shares = shares};
    enum status st;
    set->n_workers = work->plan->n_workers;
    TRY(arena_alloc_array(set->memory, (size_t)set->n_workers, sizeof(struct program *),
                          &set->programs));
    TRY(find_twins(work, twins, set->memory, &set->twin_of));
    s.programs = set->programs;
    TRY_GOTO(st, list_items(&s, set->twin_of), out);
    TRY_GOTO(st, parallel_run(s.n_items, s.n_rooms, create_item, &s), out);
    for (int i = 0; i < set->n_workers; i++)
        set->programs[i] = set->programs[set->twin_of[i]];
out:
    close_workshop(&s);
    return st;
}

/* As program_create; a set of one. */
static enum status create_serial(const struct graph *graph, const struct program_options *options,
                                 const struct program_set *shares, struct program_set *set)
{
    struct program_options one = *options;
    one.worker = 0;
    one.shares_params_of = shares ? shares->programs[0] : NULL;
    set->n_workers = 1;
    TRY(arena_alloc(set->memory, sizeof *set->twin_of, &set->twin_of));
    TRY(arena_alloc(set->memory, sizeof(struct program *), &set->programs));
    return program_create(graph, &one, &set->programs[0]);
}

enum status program_create_all(const struct graph *graph, const struct program_options *options,
                               const struct program_set *shares, bool twins,
                               struct program_set *set)
{
    struct groundwork *work = NULL;
    enum status st;
    *set = (struct program_set){0};
    TRY(arena_create(&set->memory));
    if (!options->plan) {
        TRY_GOTO(st, create_serial(graph, options, shares, set), out);
    } else {
        TRY_GOTO(
            st, groundwork_create(graph, options->plan, options->training, options->n_steps, &work),
            out);
        TRY_GOTO(st, create_set(work, options, shares, twins, set), out);
    }
out:
    groundwork_destroy(work);
    if (st != STATUS_OK)
        program_destroy_all(set);
    return st;
}

static enum status measure_item(void *user, int item, int thread)
{
    const struct workshop *s = user;
    struct room *room = &s->rooms[thread];
    int worker = s->items[item];
    struct lowering given = lowering_in(s, room, worker);
    struct program *p;
    given.enough = s->enough[worker];
    TRY(start(&given, s->options, worker, room->memory, &p));
    enum status st = place(p, &given);
    memcpy(s->enough[worker], p->slab_bytes, sizeof p->slab_bytes);
    destroy_groups(p);
    arena_reset(room->memory);
    arena_reset(room->scratch);
    return st;
}

/* Of twins what the one with the least has. */
static enum status find_enough(struct workshop *s, const int *twin_of)
{
    int n = s->work->plan->n_workers;
    TRY(arena_alloc_array(s->work->memory, (size_t)n, sizeof *s->enough, &s->enough));
    for (int i = 0; i < n; i++)
        for (int k = 0; k < BUFFER_CLASS_COUNT; k++) {
            int64_t *least = &s->enough[twin_of[i]][k];
            if (twin_of[i] == i || s->slab_bytes[i][k] < *least)
                *least = s->slab_bytes[i][k];
        }
    return STATUS_OK;
}

static void take_larger(int64_t to[BUFFER_CLASS_COUNT], const int64_t from[BUFFER_CLASS_COUNT])
{
    for (int k = 0; k < BUFFER_CLASS_COUNT; k++)
        to[k] = from[k] > to[k] ? from[k] : to[k];
}

static enum status find_memory(const struct groundwork *work, const struct program_options *options,
                               const struct program_set *shares,
                               int64_t (*slab_bytes)[BUFFER_CLASS_COUNT])
{
    struct workshop s = {
        .work = work, .options = options, .shares = shares, .slab_bytes = slab_bytes};
    int *twin_of;
    enum status st;
    TRY(groundwork_find_twins(work, work->memory, &twin_of));
    TRY(find_enough(&s, twin_of));
    TRY_GOTO(st, list_items(&s, twin_of), out);
    TRY_GOTO(st, parallel_run(s.n_items, s.n_rooms, measure_item, &s), out);
    for (int i = 0; i < work->plan->n_workers; i++)
        take_larger(slab_bytes[i], s.enough[twin_of[i]]);
out:
    close_workshop(&s);
    return st;
}

enum status program_find_memory(const struct graph *graph, const struct program_options *options,
                                const struct program_set *shares,
                                int64_t (*slab_bytes)[BUFFER_CLASS_COUNT])
{
    struct groundwork *work;
    TRY(groundwork_create(graph, options->plan, options->training, options->n_steps, &work));
    enum status st = find_memory(work, options, shares, slab_bytes);
    groundwork_destroy(work);
    return st;
}

void program_destroy_all(struct program_set *set)
{
    for (int i = 0; set->programs && i < set->n_workers; i++)
        if (set->twin_of && set->twin_of[i] == i)
            program_destroy(set->programs[i]);
    arena_destroy(set->memory);
    *set = (struct program_set){0};
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

/* What the instruction is about: a group, a parameter or a buffer. */
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
