/* Whole tensors from and to the workers that hold their regions.
 *
 * Under MPI the root asks: before each tensor it tells all others its next request; they
 * answer until it says that it is done:
 *
 *     root                                others
 *     broadcast READ conv1.weight   ->    send their region, if theirs is the one that is saved
 *     broadcast WRITE conv1.weight  ->    take the whole (a broadcast), keep their region
 *     broadcast END status          ->    return that status
 */
#include "runtime/crew_parts.h"

#include <stdlib.h>
#include <string.h>

enum request_kind { REQUEST_READ, REQUEST_WRITE, REQUEST_END };

struct request {
    enum request_kind kind;
    int param;
    enum executor_tensor which;
    struct status_error error; /* END */
};

/* Which part of a parameter a worker saves. */
struct crew_param_part {
    bool saves;
    struct range region[SHAPE_MAX_RANK];
};

static const struct shape *shape_of(const crew *c, int param)
{
    return &c->options.graphs[CREW_TRAIN]->params[param].spec.shape;
}

/* ---- regions ---- */

static int64_t count_region(const struct shape *whole, const struct range *region)
{
    int64_t count = 1;
    for (int axis = 0; axis < whole->rank; axis++)
        count *= region[axis].end - region[axis].begin;
    return count;
}

/* Copies row by row between the whole and the part, which is dense: into the part if `take`. */
static void copy_region(const struct shape *shape, const struct range *region, float *whole,
                        float *part, bool take)
{
    int last = shape->rank - 1;
    size_t row = (size_t)(region[last].end - region[last].begin);
    int64_t n_rows = count_region(shape, region) / (int64_t)(row ? row : 1);
    int64_t at[SHAPE_MAX_RANK];
    for (int axis = 0; axis <= last; axis++)
        at[axis] = region[axis].begin;
    for (int64_t r = 0; row && r < n_rows; r++, part += row) {
        int64_t place = 0;
        for (int axis = 0; axis <= last; axis++)
            place = place * shape->dim[axis] + at[axis];
        memcpy(take ? part : whole + place, take ? whole + place : part, row * sizeof *part);
        for (int axis = last - 1; axis >= 0 && ++at[axis] == region[axis].end; axis--)
            at[axis] = region[axis].begin;
    }
}

/* ---- the workers of this process ---- */

struct tensor_call {
    crew *crew;
    int param;
    enum executor_tensor which;
    float *whole; /* to write locally it is only read */
};

static bool holds(const struct program_param *p, enum executor_tensor which)
{
    return p->weight != NO_BUFFER && (which == TENSOR_WEIGHT || p->has_state);
}

static enum status read_local(int number, void *user)
{
    const struct tensor_call *call = user;
    struct crew_worker *w = &call->crew->workers[number];
    const struct program_param *p = &w->programs[CREW_TRAIN]->params[call->param];
    if (!p->saves || !holds(p, call->which))
        return STATUS_OK;
    TRY(executor_read(w->executor, call->param, call->which, w->scratch));
    copy_region(shape_of(w->crew, call->param), p->region, call->whole, w->scratch, false);
    return STATUS_OK;
}

static enum status write_local(int number, void *user)
{
    const struct tensor_call *call = user;
    struct crew_worker *w = &call->crew->workers[number];
    const struct program_param *p = &w->programs[CREW_TRAIN]->params[call->param];
    if (!holds(p, call->which))
        return STATUS_OK;
    copy_region(shape_of(w->crew, call->param), p->region, call->whole, w->scratch, true);
    return executor_write(w->executor, call->param, call->which, w->scratch);
}

/* ---- other processes ---- */

enum status crew_learn_parts(crew *c)
{
    comm *end = crew_process(c);
    size_t n = (size_t)c->options.graphs[CREW_TRAIN]->n_params;
    struct crew_param_part *mine;
    TRY(arena_alloc_array(c->memory, n, sizeof *mine, &mine));
    TRY(arena_alloc_array(c->memory, n * (size_t)end->size, sizeof *c->parts, &c->parts));
    for (size_t i = 0; i < n; i++) {
        const struct program_param *p = &c->workers[0].programs[CREW_TRAIN]->params[i];
        mine[i].saves = p->weight != NO_BUFFER && p->saves;
        memcpy(mine[i].region, p->region, sizeof mine[i].region);
    }
    return end->table->exchange(end, mine, (int64_t)(n * sizeof *mine), c->parts);
}

static const struct crew_param_part *part_of(const crew *c, int worker, int param)
{
    return &c->parts[(size_t)worker * (size_t)c->options.graphs[CREW_TRAIN]->n_params +
                     (size_t)param];
}

/* The workers' scratch has room for their own regions, perhaps not for others' or the whole. */
static enum status make_room(crew *c, int64_t count)
{
    if (count <= c->room_count)
        return STATUS_OK;
    free(c->room);
    c->room_count = 0;
    c->room = malloc((size_t)count * sizeof *c->room);
    if (!c->room)
        return status_no_memory((size_t)count * sizeof *c->room);
    c->room_count = count;
    return STATUS_OK;
}

static enum status gather(crew *c, const struct tensor_call *call)
{
    comm *end = crew_process(c);
    const struct shape *shape = shape_of(c, call->param);
    for (int i = 1; i < end->size; i++) {
        const struct crew_param_part *part = part_of(c, i, call->param);
        int64_t count = count_region(shape, part->region);
        if (!part->saves)
            continue;
        TRY(make_room(c, count));
        TRY(end->table->receive(end, i, c->room, count * (int64_t)sizeof(float)));
        copy_region(shape, part->region, call->whole, c->room, false);
    }
    return STATUS_OK;
}

static enum status ask(crew *c, struct request r)
{
    comm *end = crew_process(c);
    return end ? end->table->broadcast(end, 0, &r, sizeof r) : STATUS_OK;
}

static enum status root_read(void *holder, int param, enum executor_tensor which, float *to)
{
    crew *c = holder;
    struct tensor_call call = {.crew = c, .param = param, .which = which};
    call.whole = to;
    TRY(ask(c, (struct request){REQUEST_READ, param, which, {0}}));
    TRY(thread_team_run(c->thread_team, read_local, &call));
    return c->info.alone ? STATUS_OK : gather(c, &call);
}

static enum status root_write(void *holder, int param, enum executor_tensor which,
                              const float *from)
{
    crew *c = holder;
    comm *end = crew_process(c);
    struct tensor_call call = {c, param, which, (float *)(uintptr_t)from};
    TRY(ask(c, (struct request){REQUEST_WRITE, param, which, {0}}));
    if (end)
        TRY(end->table->broadcast(end, 0, call.whole,
                                  shape_elements(shape_of(c, param)) * (int64_t)sizeof(float)));
    return thread_team_run(c->thread_team, write_local, &call);
}

static enum status answer_read(crew *c, const struct request *r)
{
    comm *end = crew_process(c);
    struct crew_worker *w = &c->workers[0];
    const struct crew_param_part *part = part_of(c, end->rank, r->param);
    if (!part->saves)
        return STATUS_OK;
    TRY(executor_read(w->executor, r->param, r->which, w->scratch));
    return end->table->send(end, 0, w->scratch,
                            count_region(shape_of(c, r->param), part->region) *
                                (int64_t)sizeof(float));
}

static enum status answer_write(crew *c, const struct request *r)
{
    comm *end = crew_process(c);
    int64_t count = shape_elements(shape_of(c, r->param));
    TRY(make_room(c, count));
    TRY(end->table->broadcast(end, 0, c->room, count * (int64_t)sizeof(float)));
    struct tensor_call call = {c, r->param, r->which, c->room};
    return thread_team_run(c->thread_team, write_local, &call);
}

static enum status serve_root(crew *c)
{
    comm *end = crew_process(c);
    for (;;) {
        struct request r;
        TRY(end->table->broadcast(end, 0, &r, sizeof r));
        if (r.kind == REQUEST_END) {
            if (r.error.status != STATUS_OK)
                crew_note_common_failure(c);
            return status_give(&r.error);
        }
        TRY(r.kind == REQUEST_READ ? answer_read(c, &r) : answer_write(c, &r));
    }
}

static enum status lead(crew *c, crew_tensor_work *work, void *user)
{
    struct tensor_store tensors = {root_read, root_write, c};
    struct request end = {.kind = REQUEST_END};
    enum status st = work(&tensors, user);
    if (c->info.alone)
        return st;
    if (st != STATUS_OK)
        status_take(st, &end.error);
    enum status told = ask(c, end);
    if (st == STATUS_OK)
        return told;
    if (told == STATUS_OK)
        crew_note_common_failure(c);
    else
        status_clear();
    return status_give(&end.error);
}

enum status crew_with_tensors(crew *c, crew_tensor_work *work, void *user)
{
    if (!c->info.alone)
        crew_be_patient(c, true);
    enum status st = c->info.root ? lead(c, work, user) : serve_root(c);
    if (!c->info.alone)
        crew_be_patient(c, false);
    if (st != STATUS_OK && !c->info.alone && !crew_failed_together())
        crew_abort(c, st);
    return st;
}

/* ---- values that every process has ---- */

static enum status local_write(void *holder, int param, enum executor_tensor which,
                               const float *from)
{
    crew *c = holder;
    struct tensor_call call = {c, param, which, (float *)(uintptr_t)from};
    return thread_team_run(c->thread_team, write_local, &call);
}

struct tensor_store crew_local_tensors(crew *c)
{
    return (struct tensor_store){NULL, local_write, c};
}
