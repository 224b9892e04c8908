/* check.h: reads every sample of a dataset once: finds the corrupt ones, and the pixels' mean and
 * deviation.
 *
 *     struct data_check c;
 *     TRY(data_check_run("imagefolder:photos", NULL, &c));
 *     for (int64_t i = 0; i < c.n_corrupt; i++)
 *         puts(c.corrupt[i].why);
 *     data_check_free(&c);
 */
#ifndef CLEAVE_DATA_CHECK_H
#define CLEAVE_DATA_CHECK_H

#include "data/dataset.h"

enum { DATA_CHECK_CHANNELS = 4 };

struct data_check_options {
    int threads; /* that read; 0: the cores */
    /* Called now and then from the calling thread, if not NULL. */
    void (*progress)(void *user, int64_t done, int64_t total);
    void *user;
};

struct data_check_sample {
    enum dataset_split split;
    int64_t index;
    char *why; /* naming the file */
};

struct data_check {
    struct dataset_info info;
    int64_t n[2], n_bad[2]; /* by split: samples, and those of them that cannot be read */
    struct data_check_sample *corrupt; /* [n_corrupt], training before test, by index */
    int64_t n_corrupt;
    /* By channel, of the training samples that can be read: of pixels from 0 to 1, and of made-up
     * data of the values as they are. The same for any number of threads. */
    int n_channels; /* 0: more than DATA_CHECK_CHANNELS, or nothing could be read */
    double mean[DATA_CHECK_CHANNELS], deviation[DATA_CHECK_CHANNELS];
    /* What training takes off and divides by; 0 for made-up data. */
    double usual_mean[DATA_CHECK_CHANNELS], usual_deviation[DATA_CHECK_CHANNELS];
};

/* STATUS_USAGE for a bad spec; STATUS_FAILED for a dataset that cannot be opened at all. Corrupt
 * samples are no failure of this function. */
enum status data_check_run(const char *spec, const struct data_check_options *options,
                           struct data_check *out) MUST_USE;
void data_check_free(struct data_check *c);

#endif
