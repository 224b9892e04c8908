#include "data/check.h"

#include "base/array.h"
#include "base/numbers.h"
#include "base/parallel.h"
#include "data/source.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 16 }; /* samples that a thread takes at once */

/* Sums are whole numbers, so that they are the same in any order: of bytes, or of values in units
 * of 2^-16, which made-up data need. */
static const double UNIT = 1 << 16;

struct sums {
    int64_t n;
    __int128 sum[DATA_CHECK_CHANNELS], squares[DATA_CHECK_CHANNELS];
};

struct checking {
    const struct data_check_options *options;
    struct data_check *out;
    dataset *set;
    enum dataset_split split;
    int64_t done_before, total;
    int room; /* of out->corrupt */
    atomic_llong n_done;
    pthread_mutex_t lock; /* of out, room and sums */
    struct sums sums;
    float **pixels; /* [threads] */
};

/* Pixels come normalised: the bytes are found again. */
static void add_sample(const struct checking *c, const float *pixels, struct sums *to)
{
    const struct source *s = dataset_source(c->set);
    const struct dataset_info *info = &s->info;
    size_t n = (size_t)info->height * (size_t)info->width;
    bool made_up = s->calls->generate;
    to->n += (int64_t)n;
    for (int k = 0; k < info->channels; k++, pixels += n) {
        int64_t sum = 0, squares = 0;
        double scale = made_up ? UNIT : 255.0 * s->std[k], shift = made_up ? 0 : 255.0 * s->mean[k];
        for (size_t i = 0; i < n; i++) {
            int64_t value = llrint((double)pixels[i] * scale + shift);
            sum += value;
            squares += value * value;
        }
        to->sum[k] += sum;
        to->squares[k] += squares;
    }
}

static enum status keep_corrupt(struct checking *c, int64_t index)
{
    struct data_check *out = c->out;
    char *why = strdup(status_message());
    status_clear();
    if (!why)
        return status_no_memory(1);
    (void)pthread_mutex_lock(&c->lock);
    enum status st = out->n_corrupt < INT_MAX
                         ? array_reserve(NULL, &out->corrupt, (int)out->n_corrupt + 1, &c->room,
                                         sizeof *out->corrupt)
                         : status_fail(STATUS_FAILED, "more than %d samples are corrupt", INT_MAX);
    if (st == STATUS_OK)
        out->corrupt[out->n_corrupt++] = (struct data_check_sample){c->split, index, why};
    else
        free(why);
    (void)pthread_mutex_unlock(&c->lock);
    return st;
}

static enum status check_chunk(void *user, int item, int thread)
{
    struct checking *c = user;
    struct sums sums = {0};
    int64_t first = (int64_t)item * CHUNK, end = int64_min(first + CHUNK, c->out->n[c->split]);
    bool adds = c->split == DATASET_TRAIN && c->out->info.channels <= DATA_CHECK_CHANNELS;
    for (int64_t i = first; i < end; i++) {
        int32_t label;
        enum status st = dataset_read(c->set, i, c->pixels[thread], &label);
        if (st != STATUS_OK && status_is_of_content())
            TRY(keep_corrupt(c, i));
        else if (st != STATUS_OK)
            return st;
        else if (adds)
            add_sample(c, c->pixels[thread], &sums);
    }
    int64_t done = c->done_before + atomic_fetch_add(&c->n_done, end - first) + end - first;
    if (thread == 0 && c->options->progress)
        c->options->progress(c->options->user, done, c->total);
    (void)pthread_mutex_lock(&c->lock);
    c->sums.n += sums.n;
    for (int k = 0; k < DATA_CHECK_CHANNELS; k++) {
        c->sums.sum[k] += sums.sum[k];
        c->sums.squares[k] += sums.squares[k];
    }
    (void)pthread_mutex_unlock(&c->lock);
    return STATUS_OK;
}

static enum status check_all(struct checking *c)
{
    int64_t n_chunks = (c->out->n[c->split] + CHUNK - 1) / CHUNK;
    if (n_chunks > INT_MAX)
        return status_fail(STATUS_FAILED, "%s: more samples than can be checked at once",
                           c->out->info.name);
    int threads = c->options->threads ? c->options->threads : parallel_threads((int)n_chunks);
    size_t n_bytes = (size_t)dataset_sample_floats(&c->out->info) * sizeof(float);
    c->pixels = calloc((size_t)threads, sizeof *c->pixels);
    enum status st = c->pixels ? STATUS_OK : status_no_memory(1);
    for (int i = 0; st == STATUS_OK && i < threads; i++) {
        c->pixels[i] = malloc(n_bytes);
        if (!c->pixels[i])
            st = status_no_memory(n_bytes);
    }
    if (st == STATUS_OK)
        st = parallel_run((int)n_chunks, threads, check_chunk, c);
    for (int i = 0; c->pixels && i < threads; i++)
        free(c->pixels[i]);
    free(c->pixels);
    return st;
}

static void find_figures(const struct checking *c, struct data_check *out)
{
    const struct source *s = dataset_source(c->set);
    bool made_up = s->calls->generate;
    double unit = made_up ? UNIT : 255.0, n = (double)c->sums.n;
    if (c->sums.n == 0 || s->info.channels > DATA_CHECK_CHANNELS)
        return;
    out->n_channels = s->info.channels;
    for (int k = 0; k < out->n_channels; k++) {
        double mean = (double)c->sums.sum[k] / n, square = (double)c->sums.squares[k] / n;
        out->mean[k] = mean / unit;
        out->deviation[k] = sqrt(fmax(square - mean * mean, 0)) / unit;
        out->usual_mean[k] = made_up ? 0 : (double)s->mean[k];
        out->usual_deviation[k] = made_up ? 0 : (double)s->std[k];
    }
}

static int compare_samples(const void *a, const void *b)
{
    const struct data_check_sample *x = a, *y = b;
    if (x->split != y->split)
        return x->split < y->split ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static enum status check_split(struct checking *c, dataset *set, enum dataset_split split)
{
    int64_t before = c->out->n_corrupt;
    c->set = set;
    c->split = split;
    atomic_store(&c->n_done, 0);
    TRY(check_all(c));
    c->done_before += c->out->n[split];
    c->out->n_bad[split] = c->out->n_corrupt - before;
    if (split == DATASET_TRAIN)
        find_figures(c, c->out);
    return STATUS_OK;
}

/* Both splits are opened before the first sample is read: a missing file is found at once. */
static enum status check_sets(struct checking *c, const char *spec)
{
    dataset *train, *test = NULL;
    TRY(dataset_open(spec, DATASET_TRAIN, NULL, &train));
    c->out->info = *dataset_get_info(train);
    enum status st = STATUS_OK;
    if (c->out->info.n_test > 0)
        st = dataset_open(spec, DATASET_TEST, NULL, &test);
    if (st == STATUS_OK) {
        c->out->n[DATASET_TRAIN] = c->out->info.n_samples;
        c->out->n[DATASET_TEST] = test ? dataset_get_info(test)->n_samples : 0;
        c->total = c->out->n[DATASET_TRAIN] + c->out->n[DATASET_TEST];
        st = check_split(c, train, DATASET_TRAIN);
    }
    if (st == STATUS_OK && test)
        st = check_split(c, test, DATASET_TEST);
    dataset_close(test);
    dataset_close(train);
    return st;
}

enum status data_check_run(const char *spec, const struct data_check_options *options,
                           struct data_check *out)
{
    static const struct data_check_options usual;
    struct checking c = {.options = options ? options : &usual, .out = out};
    *out = (struct data_check){.n_corrupt = 0};
    (void)pthread_mutex_init(&c.lock, NULL);
    enum status st = check_sets(&c, spec);
    (void)pthread_mutex_destroy(&c.lock);
    if (st == STATUS_OK && out->n_corrupt > 1)
        qsort(out->corrupt, (size_t)out->n_corrupt, sizeof *out->corrupt, compare_samples);
    if (st != STATUS_OK)
        data_check_free(out);
    return st;
}

void data_check_free(struct data_check *c)
{
    for (int64_t i = 0; i < c->n_corrupt; i++)
        free(c->corrupt[i].why);
    free(c->corrupt);
    *c = (struct data_check){.n_corrupt = 0};
}
