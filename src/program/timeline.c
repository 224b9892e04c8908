#include "program/timeline.h"

#include <string.h>

enum { TRACK_COMPUTE, TRACK_COMMUNICATE };

/* ---- JSON ---- */

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

/* Every event but the first; the caller adds what else the object has, and ends it. */
static void begin_event(const struct timeline_worker *w, const char *phase, const char *name,
                        int track)
{
    (void)fprintf(w->f, ",\n{\"ph\":\"%s\",\"name\":", phase);
    put_text(w->f, name);
    (void)fprintf(w->f, ",\"pid\":%d,\"tid\":%d", w->process, track);
}

/* Up to its args, which the caller ends together with the object. */
static void begin_slice(const struct timeline_worker *w, const char *name, const char *category,
                        int track, uint32_t step, int64_t begin_ns, int64_t end_ns)
{
    begin_event(w, "X", name, track);
    (void)fprintf(w->f, ",\"cat\":\"%s\",\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"step\":%u", category,
                  (double)begin_ns * 1e-3, (double)(end_ns - begin_ns) * 1e-3, step);
}

static void name_track(const struct timeline_worker *w, const char *what, int track,
                       const char *name)
{
    begin_event(w, "M", what, track);
    (void)fputs(",\"args\":{\"name\":", w->f);
    put_text(w->f, name);
    (void)fputs("}}", w->f);
}

/* ---- slices ---- */

void timeline_put(const struct timeline_worker *w, const char *name, const char *category,
                  uint32_t step, int64_t begin_ns, int64_t end_ns)
{
    begin_slice(w, name, category, TRACK_COMPUTE, step, begin_ns, end_ns);
    (void)fputs("}}", w->f);
}

static void put_wait(const struct timeline_worker *w, const struct program *p,
                     const struct instr *instr, uint32_t step, const struct timeline_time *at)
{
    if (at->begin_ns <= at->reached_ns || instr->n_waits == 0)
        return;
    char text[160], name[200];
    (void)snprintf(name, sizeof name, "wait for %s",
                   program_instr_text(p, instr->waits[instr->n_waits - 1], text, sizeof text));
    timeline_put(w, name, "wait", step, at->reached_ns, at->begin_ns);
}

static void put_computation(const struct timeline_worker *w, const struct program *p, int number,
                            uint32_t step, const struct timeline_time *at)
{
    const struct instr *instr = &p->instrs[number];
    char text[160];
    put_wait(w, p, instr, step, at);
    begin_slice(w, program_instr_text(p, number, text, sizeof text),
                instr->kind == INSTR_LOAD ? "load" : "compute", TRACK_COMPUTE, step, at->begin_ns,
                at->end_ns);
    (void)fprintf(w->f, ",\"instruction\":%d", number);
    if (instr->micro >= 0)
        (void)fprintf(w->f, ",\"micro_batch\":%d", instr->micro);
    (void)fputs("}}", w->f);
}

/* The first track that is free by then. */
static int find_lane(struct timeline_worker *w, const struct timeline_time *at)
{
    int lane = 0;
    while (lane < w->n_lanes && w->lane_end_ns[lane] > at->begin_ns)
        lane++;
    if (lane == TIMELINE_MAX_LANES)
        lane--;
    if (lane == w->n_lanes) {
        char name[32] = "communicate";
        if (lane > 0)
            (void)snprintf(name, sizeof name, "communicate %d", lane + 1);
        name_track(w, "thread_name", TRACK_COMMUNICATE + lane, name);
        w->n_lanes++;
    }
    w->lane_end_ns[lane] = at->end_ns;
    return TRACK_COMMUNICATE + lane;
}

static void put_communication(struct timeline_worker *w, const struct program *p, int number,
                              uint32_t step, const struct timeline_time *at)
{
    const struct instr *instr = &p->instrs[number];
    char text[160];
    begin_slice(w, program_instr_text(p, number, text, sizeof text), "communicate",
                find_lane(w, at), step, at->begin_ns, at->end_ns);
    (void)fprintf(w->f, ",\"instruction\":%d", number);
    if (instr->kind == INSTR_REDUCE) {
        const struct comm_reduction *r = &p->reductions[instr->index].spec;
        (void)fprintf(w->f, ",\"bytes\":%lld,\"workers\":%d,\"method\":\"%s\"}}",
                      (long long)p->buffers[p->reductions[instr->index].buffer].n_bytes,
                      r->n_members, comm_method_name(r->method));
    } else {
        const struct program_message *m = &p->messages[instr->index];
        (void)fprintf(w->f, ",\"bytes\":%lld,\"peer\":%d}}", (long long)m->n_bytes, m->peer);
    }
}

void timeline_put_instr(struct timeline_worker *w, const struct program *p, int number,
                        uint32_t step, const struct timeline_time *at)
{
    if (p->instrs[number].stream == STREAM_COMPUTE)
        put_computation(w, p, number, step, at);
    else
        put_communication(w, p, number, step, at);
}

/* ---- the file ---- */

void timeline_open_worker(struct timeline_worker *w, FILE *f, int process, int place,
                          const char *name)
{
    *w = (struct timeline_worker){.f = f, .process = process};
    name_track(w, "process_name", 0, name);
    begin_event(w, "M", "process_sort_index", 0);
    (void)fprintf(f, ",\"args\":{\"sort_index\":%d}}", place);
    name_track(w, "thread_name", TRACK_COMPUTE, "compute");
}

void timeline_begin(FILE *f, const struct timeline_head *head)
{
    (void)fprintf(
        f, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"kind\":\"%s\",\"plan\":", head->kind);
    put_text(f, head->plan);
    (void)fprintf(f, ",\"workers\":%d,\"runs\":[", head->n_workers);
    for (int i = 0; i < head->n_runs; i++) {
        const struct timeline_run *run = &head->runs[i];
        (void)fprintf(f, "%s{\"step\":%u,\"steps\":%d,\"batch\":%lld}", i ? "," : "", run->step,
                      run->n_steps, (long long)run->batch);
    }
    /* All other events begin with a comma: which of them comes first is not known here. */
    (void)fputs("]},\n\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":0,"
                "\"tid\":0,\"args\":{\"sort_index\":0}}",
                f);
}

void timeline_end(FILE *f)
{
    (void)fputs("\n]}\n", f);
}
