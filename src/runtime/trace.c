#include "runtime/trace.h"

#include "base/log.h"
#include "base/whole_file.h"
#include "program/timeline.h"
#include "runtime/crew_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- keeping ---- */

static int most_instrs(const struct crew_worker *w)
{
    int most = 1;
    for (int p = 0; p < CREW_EVAL; p++)
        if (w->programs[p] && w->programs[p]->n_instrs > most)
            most = w->programs[p]->n_instrs;
    return most;
}

enum status crew_alloc_times(struct crew_worker *w)
{
    arena *memory = w->crew->memory;
    int by_steps = w->crew->options.trace_steps / w->programs[CREW_TRAIN]->n_steps;
    int by_events = TRACE_INSTRUCTIONS / most_instrs(w);
    int n = by_steps < by_events ? by_steps : by_events;
    w->n_kept_most = n > 1 ? n : 1;
    TRY(executor_keep_times(w->executor));
    TRY(arena_alloc_array(memory, (size_t)w->n_kept_most, sizeof *w->kept, &w->kept));
    for (int i = 0; i < w->n_kept_most; i++)
        TRY(arena_alloc_array(memory, (size_t)most_instrs(w), sizeof *w->kept[i].times,
                              &w->kept[i].times));
    return STATUS_OK;
}

void crew_keep_times(struct crew_worker *w, enum crew_program which, uint32_t step)
{
    struct crew_times *to = &w->kept[w->n_kept++ % w->n_kept_most];
    to->which = which;
    to->step = step;
    memcpy(to->times, executor_get_times(w->executor, w->executor_program[which]),
           (size_t)w->programs[which]->n_instrs * sizeof *to->times);
}

/* ---- events of one worker ---- */

static void write_run(struct timeline_worker *t, const struct crew_worker *w,
                      const struct crew_times *run)
{
    const struct program *p = w->programs[run->which];
    int64_t clock_ns = w->crew->clock_ns;
    for (int i = 0; i < p->n_instrs; i++) {
        const struct executor_time *at = &run->times[i];
        struct timeline_time since = {at->reached_ns - clock_ns, at->begin_ns - clock_ns,
                                      at->end_ns - clock_ns};
        if (at->end_ns != 0)
            timeline_put_instr(t, p, i, run->step, &since);
    }
}

static int count_kept(const struct crew_worker *w)
{
    return w->n_kept < w->n_kept_most ? w->n_kept : w->n_kept_most;
}

/* Run i of those that are kept, the oldest first. */
static const struct crew_times *kept_run(const struct crew_worker *w, int i)
{
    return &w->kept[(w->n_kept - count_kept(w) + i) % w->n_kept_most];
}

static void write_worker(FILE *f, const struct crew_worker *w)
{
    struct timeline_worker t;
    char name[32];
    (void)snprintf(name, sizeof name, "worker %d", w->number);
    timeline_open_worker(&t, f, w->number, w->number, name);
    for (int i = 0; i < count_kept(w); i++)
        write_run(&t, w, kept_run(w, i));
}

/* ---- the file ---- */

/* The events of this process's worker as text, which the caller frees. */
static enum status print_worker(const crew *c, char **text, size_t *n_bytes)
{
    *text = NULL;
    FILE *f = open_memstream(text, n_bytes);
    if (!f)
        return status_no_memory(1);
    write_worker(f, &c->workers[0]);
    bool failed = ferror(f) != 0;
    if (fclose(f) == 0 && !failed)
        return STATUS_OK;
    free(*text);
    *text = NULL;
    return status_no_memory(*n_bytes);
}

static enum status send_events(crew *c)
{
    comm *end = crew_process(c);
    char *text;
    size_t n_bytes;
    TRY(print_worker(c, &text, &n_bytes));
    int64_t length = (int64_t)n_bytes;
    enum status st;
    TRY_GOTO(st, end->table->send(end, 0, &length, sizeof length), out);
    TRY_GOTO(st, end->table->send(end, 0, text, length), out);
out:
    free(text);
    return st;
}

static enum status receive_events(crew *c, int worker, FILE *f)
{
    comm *end = crew_process(c);
    int64_t length;
    TRY(end->table->receive(end, worker, &length, sizeof length));
    char *text = malloc((size_t)length + 1);
    if (!text)
        return status_no_memory((size_t)length + 1);
    enum status st = end->table->receive(end, worker, text, length);
    if (st == STATUS_OK)
        (void)fwrite(text, 1, (size_t)length, f);
    free(text);
    return st;
}

static enum status write_head(const crew *c, FILE *f)
{
    const struct crew_worker *first = &c->workers[0];
    struct timeline_run *runs;
    int n = count_kept(first);
    TRY(arena_alloc_array(c->memory, (size_t)n, sizeof *runs, &runs));
    for (int i = 0; i < n; i++) {
        const struct crew_times *kept = kept_run(first, i);
        const struct program *p = first->programs[kept->which];
        runs[i] = (struct timeline_run){kept->step, p->n_steps, p->graph->batch};
    }
    timeline_begin(f, &(struct timeline_head){.kind = "measured",
                                              .plan = c->options.plan->name,
                                              .n_workers = c->info.n_workers,
                                              .n_runs = n,
                                              .runs = runs});
    return STATUS_OK;
}

static enum status write_all(FILE *f, void *user)
{
    crew *c = user;
    TRY(write_head(c, f));
    for (int i = 0; i < c->info.n_local; i++)
        write_worker(f, &c->workers[i]);
    for (int i = 1; !c->info.alone && i < c->info.n_workers; i++)
        TRY(receive_events(c, i, f));
    timeline_end(f);
    return STATUS_OK;
}

static void warn_aside(void)
{
    log_warn("%s; this run has no trace", status_message());
    status_clear();
}

/* Without a file to write to, too: the other processes hand over their times all the same. */
static enum status write_aside(crew *c, const char *path)
{
    whole_file *f;
    if (whole_file_open(path, &f) != STATUS_OK) {
        warn_aside();
        TRY(whole_file_open("/dev/null", &f));
    }
    enum status st = write_all(whole_file_stream(f), c);
    if (st != STATUS_OK)
        whole_file_drop(f);
    else if (whole_file_end(f, STATUS_OK) != STATUS_OK)
        warn_aside();
    return st;
}

static enum status write_root(crew *c, const char *path, bool aside)
{
    return aside ? write_aside(c, path) : whole_file_write(path, write_all, c);
}

enum status trace_write(crew *c, const char *path, bool aside)
{
    if (!c->workers[0].kept)
        return status_fail(STATUS_FAILED, "no times were kept");
    enum status st = c->info.root ? write_root(c, path, aside) : send_events(c);
    if (st != STATUS_OK)
        crew_abort(c, st);
    return st;
}
