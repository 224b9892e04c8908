/* The time to make a sample: reading, decoding and augmenting, by one loader thread. */
#include "base/numbers.h"
#include "base/timer.h"
#include "data/loader.h"
#include "profile/measure.h"
#include "profile/other_load.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST_BATCHES = 8, MOST_BATCHES = 512, FEED_KEY_BYTES = 512 };
static const double BUDGET_S = 0.5;

struct feed {
    const struct feed_request *request;
    loader *loader;
    int64_t epoch;
    int n;
    double sample_s[MOST_BATCHES];
    double disturbed;
};

static enum status look_up(const struct feed *f, double share)
{
    const struct measure_callbacks *c = &f->request->callbacks;
    if (c->stops && c->stops(c->user))
        return status_fail(STATUS_STOPPED, "stopped while measuring %s", f->request->data);
    return c->on_progress ? c->on_progress(c->user, share < 1 ? share : 1, f->request->data)
                          : STATUS_OK;
}

/* Takes the next batch, of this epoch or the next, and gives it back. */
static enum status take_batch(struct feed *f, int64_t *n)
{
    struct batch b;
    TRY(loader_next(f->loader, &b));
    if (b.n_global == 0) {
        TRY(loader_start(f->loader, ++f->epoch, 0));
        TRY(loader_next(f->loader, &b));
    }
    loader_release(f->loader);
    *n = b.n_samples;
    return *n > 0 ? STATUS_OK : status_fail(STATUS_FAILED, "%s has no samples", f->request->data);
}

/* The caller only takes batches, so the time between two batches is the time to make one. */
static enum status time_batches(struct feed *f)
{
    double budget_s = f->request->budget_s > 0 ? f->request->budget_s : BUDGET_S, spent_s = 0;
    int64_t n;
    TRY(loader_start(f->loader, 0, 0));
    TRY(take_batch(f, &n)); /* the first one pays for the start */
    int64_t before_ns = timer_now_ns();
    while (f->n < MOST_BATCHES && (f->n < LEAST_BATCHES || spent_s < budget_s)) {
        TRY(look_up(f, spent_s / budget_s));
        TRY(take_batch(f, &n));
        int64_t now_ns = timer_now_ns();
        double batch_s = (double)(now_ns - before_ns) * 1e-9;
        f->sample_s[f->n++] = batch_s / (double)n;
        spent_s += batch_s;
        before_ns = now_ns;
    }
    return STATUS_OK;
}

static void find_cost(struct feed *f, struct profile_cost *cost)
{
    numbers_sort(f->sample_s, (int)f->n);
    double middle = f->sample_s[f->n / 2];
    double scatter = f->sample_s[f->n * 3 / 4] - f->sample_s[f->n / 4];
    *cost = (struct profile_cost){.seconds = middle,
                                  .spread = middle > 0 ? scatter / 2 / middle : 0,
                                  .count = f->n,
                                  .disturbed = f->disturbed};
}

static enum status time_feed(const struct feed_request *r, struct profile_cost *cost)
{
    struct loader_options o = {
        .batch = r->batch,
        .seed = 1,
        .shuffle = true,
        .augment = r->augment,
        .threads = 1,
        .skip_corrupt = DATASET_TIMED_SKIPS,
    };
    dataset *d;
    TRY(dataset_open(r->data, DATASET_TRAIN, NULL, &d));
    struct feed *f = calloc(1, sizeof *f);
    enum status st = f ? STATUS_OK : status_no_memory(sizeof *f);
    if (st == STATUS_OK) {
        f->request = r;
        st = loader_create(d, &o, &f->loader);
    }
    struct other_load others = other_load_begin();
    if (st == STATUS_OK)
        st = time_batches(f);
    double share = other_load_share(&others);
    if (st == STATUS_OK) {
        f->disturbed = share > OTHER_LOAD_DISTURBS ? share : 0;
        find_cost(f, cost);
    }
    if (f)
        loader_destroy(f->loader);
    free(f);
    dataset_close(d);
    return st;
}

/* No other option of a loader changes the time; the batch hardly does. */
static enum status write_key(const struct feed_request *r, char *key, size_t size)
{
    struct dataset_info info;
    TRY(dataset_describe(r->data, &info));
    int n = snprintf(key, size, "load %s %dx%dx%d%s", r->data, info.channels, info.height,
                     info.width, r->augment ? " augmented" : "");
    if (n < 0 || (size_t)n >= size)
        return status_fail(STATUS_USAGE, "%.200s..: too long a name for data", r->data);
    return STATUS_OK;
}

enum status profile_measure_feed(profile *p, const struct feed_request *request,
                                 struct profile_cost *cost, bool *measured)
{
    char key[FEED_KEY_BYTES], processor[MEASURE_DEVICE_BYTES];
    struct profile_setting setting = {
        .device = profile_describe_processor(processor, sizeof processor), .threads = 1, .load = 1};
    TRY(write_key(request, key, sizeof key));
    bool known =
        profile_find(p, &setting, key, cost) && !other_load_is_calmer_than(cost->disturbed);
    if (measured)
        *measured = !known;
    if (known)
        return STATUS_OK;
    TRY(time_feed(request, cost));
    struct profile_entry entry = {key, {.family = "load"}, *cost};
    return profile_replace(p, &setting, &entry, 1);
}
