/* This host as a machine: what hwloc sees, and what communication takes, measured once. */
#include "predict/predict.h"

#include "machine/measure.h"
#include "runtime/pin.h"

#include <stdlib.h>
#include <string.h>

struct survey_view {
    int threads;
    const struct measure_callbacks *callbacks;
};

static void bind_worker(int worker, int n_workers, void *user)
{
    const struct survey_view *v = user;
    (void)pin_thread(worker, n_workers, v->threads);
}

static void show(double share, void *user)
{
    const struct survey_view *v = user;
    if (v->callbacks && v->callbacks->on_progress &&
        v->callbacks->on_progress(v->callbacks->user, share, "links between workers") != STATUS_OK)
        status_clear();
}

static enum status keep(profile *p, const char *name, const struct machine *m)
{
    char *text;
    TRY(machine_write_text(m, &text));
    enum status st = profile_put_text(p, name, text);
    free(text);
    return st;
}

static enum status survey(int workers, int threads, const struct measure_callbacks *callbacks,
                          struct machine *m)
{
    struct survey_view view = {threads, callbacks};
    struct machine_measure_options o = {.workers = workers,
                                        .threads = threads,
                                        .bind = workers > 1 ? bind_worker : NULL,
                                        .progress = show,
                                        .user = &view};
    return machine_measure_threads(m, &o);
}

/* What was measured is kept; how much memory there is may have changed since. */
static enum status renew_memory(struct machine *m, int threads)
{
    struct machine *now;
    TRY(machine_discover(threads, &now));
    m->nodes[0].memory_bytes = now->nodes[0].memory_bytes;
    machine_destroy(now);
    return STATUS_OK;
}

enum status predict_local_machine(profile *p, int workers, int threads, bool look_only,
                                  const struct measure_callbacks *callbacks, struct machine **out)
{
    char name[MEASURE_DEVICE_BYTES + 64], processor[MEASURE_DEVICE_BYTES], *text = NULL;
    (void)snprintf(name, sizeof name, "machine of %d workers with %d threads on %s", workers,
                   threads, profile_describe_processor(processor, sizeof processor));
    if (p)
        TRY(profile_get_text(p, name, &text));
    struct machine *m;
    enum status st;
    if (text) {
        st = machine_parse_json(text, strlen(text), "the profile's machine", &m);
        free(text);
        TRY(st);
        st = renew_memory(m, threads);
    } else {
        TRY(machine_discover(threads, &m));
        st = look_only ? STATUS_OK : survey(workers, threads, callbacks, m);
        if (st == STATUS_OK && p && !look_only)
            st = keep(p, name, m);
    }
    if (st != STATUS_OK) {
        machine_destroy(m);
        return st;
    }
    *out = m;
    return STATUS_OK;
}
