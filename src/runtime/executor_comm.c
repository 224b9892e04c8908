/* Communication: each operation is started in the order of the program, as soon as the instructions
 * that it waits for are done, and polled while it is under way. Where the members of the transport
 * share the work (comm.h: shared_work), the computing thread does this, between instructions and
 * while it waits; else a second thread does. On the same cores a second thread would only take
 * turns with the first, and each turn costs more than a small message does. */
#include "runtime/executor_parts.h"

#include "base/numbers.h"
#include "base/thread.h"
#include "base/timer.h"

#include <stdio.h>
#include <string.h>

enum { SPIN_NS = 20000 };
static const double PAUSE_S = 0.05;         /* the longest sleep without a look around */
static const int64_t PEERS_NS = 1000000000; /* between two looks at the peers */

/* ---- failures ---- */

void executor_fail(executor *e, enum status st)
{
    struct status_error error;
    status_take(st, &error);
    pthread_mutex_lock(&e->lock);
    bool first = !atomic_load(&e->failed);
    if (first) {
        e->error = error;
        e->has_failed = true;
        atomic_store(&e->failed, true);
    }
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    if (first && e->comm) {
        e->comm->table->abort(e->comm, st, error.message);
        e->comm->table->wake(e->comm);
    }
}

enum status executor_name_instr(enum status st, const struct program *p, int number, uint32_t step)
{
    struct status_error cause;
    char text[160], worker[32] = "";
    status_take(st, &cause);
    if (p->plan->n_workers > 1)
        (void)snprintf(worker, sizeof worker, "worker %d, ", p->worker);
    return status_fail(st, "%sstep %u, instruction %d (%s): %.760s", worker, step, number,
                       program_instr_text(p, number, text, sizeof text), cause.message);
}

/* ---- operations under way ---- */

static bool may_start(const executor *e, const struct bound_program *b, const struct instr *instr)
{
    for (int k = 0; k < instr->n_waits; k++) {
        int before = instr->waits[k];
        bool computes = b->program->instrs[before].stream == STREAM_COMPUTE;
        if (computes ? atomic_load(&e->computed) < before : !atomic_load(&b->done[before]))
            return false;
    }
    return true;
}

static enum status start(executor *e, const struct bound_program *b, int position)
{
    const struct program *p = b->program;
    const struct instr *instr = &p->instrs[b->comm_instrs[position]];
    comm_op *op = &b->ops[position];
    const struct comm_table *table = e->comm->table;
    if (instr->kind == INSTR_REDUCE) {
        const struct program_reduction *r = &p->reductions[instr->index];
        return table->start_reduce(e->comm, &r->spec, executor_place(e, p, r->buffer),
                                   executor_place(e, p, r->workspace), op);
    }
    const struct program_message *m = &p->messages[instr->index];
    void *data = executor_place(e, p, m->buffer);
    if (instr->kind == INSTR_SEND)
        return table->start_send(e->comm, m->peer, m->tag, data, m->n_bytes, op);
    return table->start_receive(e->comm, m->peer, m->tag, data, m->n_bytes, op);
}

static enum status start_ready(executor *e, struct flight *f, bool *moved)
{
    const struct bound_program *b = f->b;
    while (f->next < b->n_comm) {
        int number = b->comm_instrs[f->next];
        if (!may_start(e, b, &b->program->instrs[number]))
            return STATUS_OK;
        if (b->times)
            b->times[number].reached_ns = b->times[number].begin_ns = timer_now_ns();
        enum status st = start(e, b, f->next);
        if (st != STATUS_OK)
            return executor_name_instr(st, b->program, number, e->step);
        if (f->n == 0)
            f->since_ns = timer_now_ns();
        f->under_way[f->n++] = f->next++;
        *moved = true;
    }
    return STATUS_OK;
}

static enum status poll_all(executor *e, struct flight *f, bool *moved)
{
    int left = 0;
    for (int i = 0; i < f->n; i++) {
        int position = f->under_way[i], number = f->b->comm_instrs[position];
        bool done = false;
        enum status st = e->comm->table->poll(e->comm, &f->b->ops[position], &done);
        if (st != STATUS_OK)
            return executor_name_instr(st, f->b->program, number, e->step);
        if (!done) {
            f->under_way[left++] = position;
            continue;
        }
        if (f->b->times)
            f->b->times[number].end_ns = timer_now_ns();
        atomic_store(&f->b->done[number], true);
        *moved = true;
    }
    if (f->n && left == 0)
        e->communicate_ns += timer_now_ns() - f->since_ns;
    f->n = left;
    return STATUS_OK;
}

/* Names the operation that was under way, or next, when the transport as a whole failed. */
static enum status name_first(const executor *e, const struct flight *f, enum status st)
{
    int position = f->n ? f->under_way[0] : f->next;
    return executor_name_instr(st, f->b->program, f->b->comm_instrs[position], e->step);
}

/* The failure of a time-out names the workers that are waited for. */
static enum status give_up(executor *e, const struct flight *f)
{
    const struct program *p = f->b->program;
    const struct instr *instr = &p->instrs[f->b->comm_instrs[f->under_way[0]]];
    char stopped[400] = "";
    if (e->comm->table->name_stopped)
        e->comm->table->name_stopped(e->comm, stopped, sizeof stopped);
    enum status st;
    if (instr->kind == INSTR_REDUCE) {
        const struct comm_reduction *r = &p->reductions[instr->index].spec;
        st = status_fail(STATUS_TIMEOUT,
                         "nothing moved for %g s; waits for the others of a sum over %d workers "
                         "(from worker %d to %d)%s",
                         e->comm->timeout_s, r->n_members, r->members[0],
                         r->members[r->n_members - 1], stopped);
    } else {
        st = status_fail(STATUS_TIMEOUT, "nothing moved for %g s; waits for worker %d%s",
                         e->comm->timeout_s, p->messages[instr->index].peer, stopped);
    }
    return name_first(e, f, st);
}

static enum status look_around(executor *e, struct flight *f)
{
    int64_t now = timer_now_ns();
    if (atomic_load(&e->failed))
        return STATUS_OK; /* the other thread's failure ends both */
    if (e->comm->table->check_peers && now - f->looked_ns > PEERS_NS) {
        f->looked_ns = now;
        enum status st = e->comm->table->check_peers(e->comm);
        if (st != STATUS_OK)
            return name_first(e, f, st);
    }
    double idle_s = (double)(now - atomic_load(&e->progress_ns)) * 1e-9;
    if (f->n && idle_s > e->comm->timeout_s)
        return give_up(e, f);
    enum status st = e->comm->table->pause(e->comm, PAUSE_S);
    return st == STATUS_OK ? st : name_first(e, f, st);
}

/* Starts all operations that may start and polls those under way. */
static enum status advance(executor *e, struct flight *f, bool *moved)
{
    *moved = false;
    TRY(start_ready(e, f, moved));
    TRY(poll_all(e, f, moved));
    if (*moved)
        atomic_store(&e->progress_ns, timer_now_ns());
    return STATUS_OK;
}

static bool is_over(const struct flight *f)
{
    return f->next == f->b->n_comm && f->n == 0;
}

static void begin_flight(executor *e, const struct bound_program *b)
{
    struct flight *f = &e->flight;
    *f = (struct flight){.b = b, .under_way = f->under_way, .looked_ns = timer_now_ns()};
}

/* ---- a thread that does nothing else ---- */

static enum status communicate(executor *e, struct flight *f)
{
    while (!is_over(f)) {
        bool moved;
        if (atomic_load(&e->failed))
            return STATUS_OK;
        TRY(advance(e, f, &moved));
        if (!moved) {
            TRY(look_around(e, f));
        } else if (atomic_load(&e->compute_waits)) {
            pthread_mutex_lock(&e->lock);
            pthread_cond_broadcast(&e->changed);
            pthread_mutex_unlock(&e->lock);
        }
    }
    return STATUS_OK;
}

static void *communicate_forever(void *user)
{
    executor *e = user;
    thread_be_prompt();
    pthread_mutex_lock(&e->lock);
    while (!e->quit) {
        if (!e->running) {
            pthread_cond_wait(&e->changed, &e->lock);
            continue;
        }
        begin_flight(e, e->running);
        pthread_mutex_unlock(&e->lock);
        enum status st = communicate(e, &e->flight);
        if (st != STATUS_OK)
            executor_fail(e, st);
        pthread_mutex_lock(&e->lock);
        e->running = NULL;
        pthread_cond_broadcast(&e->changed);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* ---- the computing thread's side ---- */

static enum status given_error(executor *e)
{
    pthread_mutex_lock(&e->lock);
    struct status_error error = e->error;
    pthread_mutex_unlock(&e->lock);
    return status_give(&error);
}

static enum status check(executor *e, enum status st)
{
    if (st == STATUS_OK)
        return st;
    executor_fail(e, st);
    return given_error(e);
}

static enum status attend_once(executor *e)
{
    bool moved;
    return check(e, advance(e, &e->flight, &moved));
}

/* Communicates until the instruction at *done is done, or, if it is NULL, all are. */
static enum status attend(executor *e, const atomic_bool *done)
{
    enum status st = STATUS_OK;
    while (st == STATUS_OK && !(done ? atomic_load(done) : is_over(&e->flight))) {
        bool moved;
        st = advance(e, &e->flight, &moved);
        if (st == STATUS_OK && !moved)
            st = look_around(e, &e->flight);
    }
    return check(e, st);
}

enum status executor_comm_create(executor *e)
{
    int most = 0;
    for (int i = 0; i < e->n_programs; i++)
        most = int_max(most, e->programs[i].n_comm);
    (void)pthread_mutex_init(&e->lock, NULL);
    thread_init_condition(&e->changed);
    if (most == 0 || e->measures)
        return STATUS_OK;
    if (!e->comm)
        return status_fail(STATUS_FAILED, "the program communicates, but there is no transport");
    TRY(arena_alloc_array(e->memory, (size_t)most, sizeof *e->flight.under_way,
                          &e->flight.under_way));
    e->attends = e->comm->table->shared_work;
    if (e->attends)
        return STATUS_OK;
    int error = pthread_create(&e->thread, NULL, communicate_forever, e);
    if (error)
        return status_fail(STATUS_FAILED, "cannot start a thread: %s", strerror(error));
    e->has_thread = true;
    return STATUS_OK;
}

void executor_comm_destroy(executor *e)
{
    if (e->has_thread) {
        pthread_mutex_lock(&e->lock);
        e->quit = true;
        pthread_cond_broadcast(&e->changed);
        pthread_mutex_unlock(&e->lock);
        (void)pthread_join(e->thread, NULL);
    }
    (void)pthread_cond_destroy(&e->changed);
    (void)pthread_mutex_destroy(&e->lock);
}

enum status executor_comm_start(executor *e, const struct bound_program *b)
{
    atomic_store(&e->failed, false);
    atomic_store(&e->computed, -1);
    atomic_store(&e->progress_ns, timer_now_ns());
    for (int i = 0; i < b->n_comm; i++)
        atomic_store(&b->done[b->comm_instrs[i]], false);
    e->communicate_ns = 0;
    if (e->attends) {
        begin_flight(e, b);
        return attend_once(e);
    }
    if (b->n_comm == 0)
        return STATUS_OK;
    atomic_store(&e->comm->computes, true);
    pthread_mutex_lock(&e->lock);
    e->running = b;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    return STATUS_OK;
}

/* Sleeps a moment on `changed`; the lock is held. */
static void sleep_a_moment(executor *e)
{
    struct timespec until = timer_after(0.05);
    (void)pthread_cond_timedwait(&e->changed, &e->lock, &until);
}

enum status executor_comm_finish(executor *e)
{
    if (e->attends)
        return atomic_load(&e->failed) ? given_error(e) : attend(e, NULL);
    if (!e->has_thread)
        return STATUS_OK;
    atomic_store(&e->comm->computes, false);
    pthread_mutex_lock(&e->lock);
    while (e->running)
        sleep_a_moment(e);
    pthread_mutex_unlock(&e->lock);
    return atomic_load(&e->failed) ? given_error(e) : STATUS_OK;
}

enum status executor_comm_wait(executor *e, const struct bound_program *b, int number)
{
    if (e->attends)
        return attend(e, &b->done[number]);
    int64_t start_ns = timer_now_ns();
    atomic_store(&e->comm->computes, false);
    while (!atomic_load(&b->done[number]) && !atomic_load(&e->failed))
        if (timer_now_ns() - start_ns > SPIN_NS)
            break;
    if (!atomic_load(&b->done[number])) {
        pthread_mutex_lock(&e->lock);
        atomic_store(&e->compute_waits, true);
        while (!atomic_load(&b->done[number]) && !atomic_load(&e->failed))
            sleep_a_moment(e);
        atomic_store(&e->compute_waits, false);
        pthread_mutex_unlock(&e->lock);
    }
    atomic_store(&e->comm->computes, true);
    return atomic_load(&e->failed) ? given_error(e) : STATUS_OK;
}

enum status executor_comm_computed(executor *e, const struct bound_program *b, int number)
{
    atomic_store(&e->computed, number);
    if (b->n_comm == 0)
        return STATUS_OK;
    atomic_store(&e->progress_ns, timer_now_ns());
    if (e->attends)
        return b->wakes_comm[number] || e->flight.n ? attend_once(e) : STATUS_OK;
    if (b->wakes_comm[number])
        e->comm->table->wake(e->comm);
    return STATUS_OK;
}
