/* This host as a machine: hwloc's devices, and measured links between workers. */
#include "predict/predict.h"

#include "machine/machine_measure.h"
#include "profile/other_load.h"
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

/* The names in the profile of a machine and of the share that other programs had meanwhile. */
struct names {
    char machine[MEASURE_DEVICE_BYTES + 64], load[MEASURE_DEVICE_BYTES + 96];
};

static enum status keep(profile *p, const struct names *names, const struct machine *m, double load)
{
    char *text, load_text[32];
    TRY(machine_write_text(m, &text));
    enum status st = profile_put_text(p, names->machine, text);
    free(text);
    (void)snprintf(load_text, sizeof load_text, "%.3f", load);
    return st == STATUS_OK ? profile_put_text(p, names->load, load_text) : st;
}

/* Links stay as they were measured; the memory may have changed since. */
static enum status renew_memory(struct machine *m, int threads)
{
    struct machine *now;
    TRY(machine_discover(threads, &now));
    m->nodes[0].memory_bytes = now->nodes[0].memory_bytes;
    machine_destroy(now);
    return STATUS_OK;
}

/* *out is NULL if there is none, or if it was measured beside other programs, which are gone. */
static enum status find_kept(profile *p, const struct names *names, int threads, bool look_only,
                             struct machine **out)
{
    char *text = NULL, *load = NULL;
    *out = NULL;
    if (p)
        TRY(profile_get_text(p, names->machine, &text));
    if (!text)
        return STATUS_OK;
    enum status st = profile_get_text(p, names->load, &load);
    bool is_bad = !look_only && other_load_is_calmer_than(load ? strtod(load, NULL) : 1);
    free(load);
    if (st == STATUS_OK && !is_bad)
        st = machine_parse_json(text, strlen(text), "the profile's machine", out);
    free(text);
    return st == STATUS_OK && *out ? renew_memory(*out, threads) : st;
}

enum status predict_local_machine(profile *p, int workers, int threads, bool look_only,
                                  const struct measure_callbacks *callbacks, struct machine **out)
{
    struct names names;
    char processor[MEASURE_DEVICE_BYTES];
    (void)snprintf(names.machine, sizeof names.machine,
                   "machine of %d workers with %d threads on %s", workers, threads,
                   profile_describe_processor(processor, sizeof processor));
    (void)snprintf(names.load, sizeof names.load, "other load of %s", names.machine);
    struct machine *m = NULL;
    enum status st = find_kept(p, &names, threads, look_only, &m);
    if (st == STATUS_OK && !m) {
        TRY(machine_discover(threads, &m));
        struct other_load others = other_load_begin();
        st = look_only ? STATUS_OK : survey(workers, threads, callbacks, m);
        double load = other_load_share(&others);
        if (st == STATUS_OK && p && !look_only)
            st = keep(p, &names, m, load);
    }
    if (st != STATUS_OK) {
        machine_destroy(m);
        return st;
    }
    *out = m;
    return STATUS_OK;
}
