/* Whole tensors from and to the workers that hold their regions.
 *
 * Under MPI the root asks: before each tensor it tells all others its next request; they
 * answer until it says that it is done:
 *
 *     root                                others
 *     broadcast READ conv1.weight   ->    send their region, if theirs is the one that is saved
 *     broadcast WRITE conv1.weight  ->    take the whole (a broadcast), keep their region
 *     either, with a worker         ->    that worker's copy alone
 *     broadcast END status          ->    return that status
 */
#include "runtime/crew_parts.h"

#include <stdlib.h>
#include <string.h>

enum request_kind { REQUEST_READ, REQUEST_WRITE, REQUEST_END };

enum { OF_ALL = -1 };

struct request {
    enum request_kind kind;
    int param;
    enum executor_tensor which;
    int worker; /* whose copy alone; OF_ALL: reading the one that is saved, writing all */
    struct status_error error; /* END */
};

/* Which part of a parameter a worker saves. */
struct crew_param_part {
    bool saves, copies; /* copies: goes on with a whole copy of its own, see tensor_store.h */
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
    int worker;   /* as in a request */
    float *whole; /* to write locally it is only read */
};

static bool holds(const struct program_param *p, enum executor_tensor which)
{
    return p->weight != NO_BUFFER && (which == TENSOR_WEIGHT || p->has_state);
}

/* Whether an asynchronous server lets the worker go on with a weight of its own. */
static bool has_own_copy(const struct crew_worker *w, int param)
{
    const struct crew_options *o = &w->crew->options;
    const struct program_param *p = &w->programs[CREW_TRAIN]->params[param];
    return o->plan->asynchronous && p->weight != NO_BUFFER && !p->saves &&
           plan_server_of(o->plan, o->graphs[CREW_TRAIN], param) >= 0;
}

static enum status read_local(int number, void *user)
{
    const struct tensor_call *call = user;
    struct crew_worker *w = &call->crew->workers[number];
    const struct program_param *p = &w->programs[CREW_TRAIN]->params[call->param];
    if (!holds(p, call->which) || (call->worker == OF_ALL ? !p->saves : call->worker != w->number))
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
    if (!holds(p, call->which) || (call->worker != OF_ALL && call->worker != w->number))
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
        mine[i].copies = has_own_copy(&c->workers[0], (int)i);
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
        if (call->worker == OF_ALL ? !part->saves : call->worker != i)
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

static enum status read_of(crew *c, int param, enum executor_tensor which, int worker, float *to)
{
    struct tensor_call call = {.crew = c, .param = param, .which = which, .worker = worker};
    call.whole = to;
    TRY(ask(c, (struct request){REQUEST_READ, param, which, worker, {0}}));
    TRY(thread_team_run(c->thread_team, read_local, &call));
    return c->info.alone ? STATUS_OK : gather(c, &call);
}

static enum status write_of(crew *c, int param, enum executor_tensor which, int worker,
                            const float *from)
{
    comm *end = crew_process(c);
    struct tensor_call call = {c, param, which, worker, (float *)(uintptr_t)from};
    TRY(ask(c, (struct request){REQUEST_WRITE, param, which, worker, {0}}));
    if (end)
        TRY(end->table->broadcast(end, 0, call.whole,
                                  shape_elements(shape_of(c, param)) * (int64_t)sizeof(float)));
    return thread_team_run(c->thread_team, write_local, &call);
}

static enum status root_read(void *holder, int param, enum executor_tensor which, float *to)
{
    return read_of(holder, param, which, OF_ALL, to);
}

static enum status root_write(void *holder, int param, enum executor_tensor which,
                              const float *from)
{
    return write_of(holder, param, which, OF_ALL, from);
}

static bool root_has_copy(void *holder, int param, int worker)
{
    const crew *c = holder;
    return c->info.alone ? has_own_copy(&c->workers[worker], param)
                         : part_of(c, worker, param)->copies;
}

static enum status root_read_copy(void *holder, int param, int worker, float *to)
{
    return read_of(holder, param, TENSOR_WEIGHT, worker, to);
}

static enum status root_write_copy(void *holder, int param, int worker, const float *from)
{
    return write_of(holder, param, TENSOR_WEIGHT, worker, from);
}

static enum status answer_read(crew *c, const struct request *r)
{
    comm *end = crew_process(c);
    struct crew_worker *w = &c->workers[0];
    const struct crew_param_part *part = part_of(c, end->rank, r->param);
    if (r->worker == OF_ALL ? !part->saves : r->worker != end->rank)
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
    struct tensor_call call = {c, r->param, r->which, r->worker, c->room};
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
    struct tensor_store tensors = {.read = root_read,
                                   .write = root_write,
                                   .holder = c,
                                   .n_workers =
                                       c->options.plan->asynchronous ? c->info.n_workers : 0,
                                   .has_copy = root_has_copy,
                                   .read_copy = root_read_copy,
                                   .write_copy = root_write_copy};
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
    struct tensor_call call = {c, param, which, OF_ALL, (float *)(uintptr_t)from};
    return thread_team_run(c->thread_team, write_local, &call);
}

struct tensor_store crew_local_tensors(crew *c)
{
    return (struct tensor_store){.write = local_write, .holder = c};
}

/* ---- weights that are kept ---- */

static enum status keep_local(int number, void *user)
{
    struct crew_worker *w = &((crew *)user)->workers[number];
    return executor_keep_weights(w->executor, &w->kept_weights);
}

static enum status put_back_local(int number, void *user)
{
    struct crew_worker *w = &((crew *)user)->workers[number];
    enum status st = executor_put_back_weights(w->executor, w->kept_weights);
    executor_free_kept(w->executor, w->kept_weights);
    w->kept_weights = NULL;
    return st;
}

enum status crew_keep_weights(crew *c)
{
    return crew_agree(crew_process(c), thread_team_run(c->thread_team, keep_local, c));
}

enum status crew_put_back_weights(crew *c)
{
    return crew_agree(crew_process(c), thread_team_run(c->thread_team, put_back_local, c));
}
