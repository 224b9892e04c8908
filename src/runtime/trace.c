#include "runtime/trace.h"

#include "runtime/crew_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRACK_COMPUTE, TRACK_COMMUNICATE, MAX_LANES = 64 };

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

struct writer {
    FILE *f;
    const struct crew_worker *w;
    int64_t clock_ns;               /* where the trace's time begins */
    int64_t lane_end_ns[MAX_LANES]; /* when the last operation of each track ended */
    int n_lanes;
};

static double microseconds(const struct writer *t, int64_t at_ns)
{
    return (double)(at_ns - t->clock_ns) * 1e-3;
}

static void put_text(FILE *f, const char *text)
{
    (void)fputc('"', f);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            (void)fputc('\\', f);
        if ((unsigned char)*text >= 0x20)
            (void)fputc(*text, f);
    }
    (void)fputc('"', f);
}

/* The caller adds what else the object has, and ends it. */
static void begin_event(const struct writer *t, const char *name, const char *category, int track,
                        int64_t begin_ns, int64_t end_ns)
{
    (void)fputs(",\n{\"ph\":\"X\",\"name\":", t->f);
    put_text(t->f, name);
    (void)fprintf(t->f, ",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f", category,
                  t->w->number, track, microseconds(t, begin_ns),
                  (double)(end_ns - begin_ns) * 1e-3);
}

static void name_track(const struct writer *t, const char *what, int track, const char *name,
                       int number)
{
    (void)fprintf(t->f,
                  ",\n{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":"
                  "\"%s",
                  what, t->w->number, track, name);
    if (number >= 0)
        (void)fprintf(t->f, " %d", number);
    (void)fputs("\"}}", t->f);
}

static void write_waits(const struct writer *t, const struct program *p, const struct instr *instr,
                        const struct executor_time *at)
{
    if (at->begin_ns <= at->reached_ns || instr->n_waits == 0)
        return;
    char text[160], name[200];
    (void)snprintf(name, sizeof name, "wait for %s",
                   program_instr_text(p, instr->waits[instr->n_waits - 1], text, sizeof text));
    begin_event(t, name, "wait", TRACK_COMPUTE, at->reached_ns, at->begin_ns);
    (void)fputs("}", t->f);
}

static void write_computation(const struct writer *t, const struct program *p, int number,
                              uint32_t step, const struct executor_time *at)
{
    const struct instr *instr = &p->instrs[number];
    char text[160];
    write_waits(t, p, instr, at);
    begin_event(t, program_instr_text(p, number, text, sizeof text),
                instr->kind == INSTR_LOAD ? "load" : "compute", TRACK_COMPUTE, at->begin_ns,
                at->end_ns);
    (void)fprintf(t->f, ",\"args\":{\"step\":%u,\"instruction\":%d", step, number);
    if (instr->micro >= 0)
        (void)fprintf(t->f, ",\"micro_batch\":%d", instr->micro);
    (void)fputs("}}", t->f);
}

/* The first track that is free by then. */
static int find_lane(struct writer *t, const struct executor_time *at)
{
    int lane = 0;
    while (lane < t->n_lanes && t->lane_end_ns[lane] > at->begin_ns)
        lane++;
    if (lane == MAX_LANES)
        lane--;
    if (lane == t->n_lanes) {
        t->n_lanes++;
        name_track(t, "thread_name", TRACK_COMMUNICATE + lane, "communicate", lane ? lane + 1 : -1);
    }
    t->lane_end_ns[lane] = at->end_ns;
    return TRACK_COMMUNICATE + lane;
}

static void write_communication(struct writer *t, const struct program *p, int number,
                                uint32_t step, const struct executor_time *at)
{
    const struct instr *instr = &p->instrs[number];
    char text[160];
    begin_event(t, program_instr_text(p, number, text, sizeof text), "communicate",
                find_lane(t, at), at->begin_ns, at->end_ns);
    (void)fprintf(t->f, ",\"args\":{\"step\":%u,\"instruction\":%d", step, number);
    if (instr->kind == INSTR_REDUCE) {
        const struct comm_reduction *r = &p->reductions[instr->index].spec;
        (void)fprintf(t->f, ",\"bytes\":%lld,\"workers\":%d,\"method\":\"%s\"",
                      (long long)p->buffers[p->reductions[instr->index].buffer].n_bytes,
                      r->n_members, comm_method_name(r->method));
    } else {
        const struct program_message *m = &p->messages[instr->index];
        (void)fprintf(t->f, ",\"bytes\":%lld,\"peer\":%d", (long long)m->n_bytes, m->peer);
    }
    (void)fputs("}}", t->f);
}

static void write_run(struct writer *t, const struct crew_times *run)
{
    const struct program *p = t->w->programs[run->which];
    for (int i = 0; i < p->n_instrs; i++) {
        const struct executor_time *at = &run->times[i];
        if (at->end_ns == 0)
            continue;
        if (p->instrs[i].stream == STREAM_COMPUTE)
            write_computation(t, p, i, run->step, at);
        else
            write_communication(t, p, i, run->step, at);
    }
}

static void write_worker(FILE *f, const struct crew_worker *w)
{
    struct writer t = {.f = f, .w = w, .clock_ns = w->crew->clock_ns};
    name_track(&t, "process_name", 0, "worker", w->number);
    name_track(&t, "thread_name", TRACK_COMPUTE, "compute", -1);
    int first = w->n_kept > w->n_kept_most ? w->n_kept - w->n_kept_most : 0;
    for (int i = first; i < w->n_kept; i++)
        write_run(&t, &w->kept[i % w->n_kept_most]);
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

static enum status write_all(crew *c, FILE *f)
{
    const struct crew_worker *first = &c->workers[0];
    (void)fprintf(f, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"plan\":");
    put_text(f, c->options.plan->name);
    (void)fprintf(f,
                  ",\"workers\":%d,\"note\":\"the last %d runs of the training program, %d steps "
                  "each\"},\n\"traceEvents\":[\n",
                  c->info.n_workers,
                  first->n_kept < first->n_kept_most ? first->n_kept : first->n_kept_most,
                  first->programs[CREW_TRAIN]->n_steps);
    (void)fprintf(f, "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":0,\"args\":"
                     "{\"sort_index\":0}}");
    for (int i = 0; i < c->info.n_local; i++)
        write_worker(f, &c->workers[i]);
    for (int i = 1; !c->info.alone && i < c->info.n_workers; i++)
        TRY(receive_events(c, i, f));
    (void)fputs("\n]}\n", f);
    return STATUS_OK;
}

static enum status write_file(crew *c, const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return status_fail(STATUS_FAILED, "%s: cannot write: %s", path, strerror(errno));
    enum status st = write_all(c, f);
    errno = 0;
    bool failed = ferror(f) != 0;
    if ((fclose(f) != 0 || failed) && st == STATUS_OK)
        st = status_fail(STATUS_FAILED, "%s: cannot write: %s", path,
                         errno ? strerror(errno) : "an earlier write failed");
    return st;
}

enum status trace_write(crew *c, const char *path)
{
    if (!c->workers[0].kept)
        return status_fail(STATUS_FAILED, "no times were kept");
    enum status st = c->info.root ? write_file(c, path) : send_events(c);
    if (st != STATUS_OK)
        crew_abort(c, st);
    return st;
}
