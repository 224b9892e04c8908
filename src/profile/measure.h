/* measure.h: fills a profile with what the instructions of a plan take on this machine.
 *
 * All workers run the computing instructions of their programs in order, each on its own cores, at
 * the same time, without communication, in rounds (rounds.h). So an instruction is timed as it will
 * run: after its predecessor, with the caches and the memory as busy as in training. Its cost is
 * the median of the rounds.
 *
 *     struct measure_request r = {.programs = programs};
 *     struct measure_result done;
 *     TRY(profile_measure(p, &r, &done));
 *     ... profile_find(p, &done.setting, key, &cost) ...
 *
 * What the profile has already is checked once in a process: short rounds of the plan must take as
 * long as the kept costs say, within MEASURE_TOLERANCE. If they do not, or if other programs
 * disturbed the kept costs and are gone, the plan is measured again: its costs replace those
 * measured less calmly, and those measured as calmly but earlier.
 */
#ifndef CLEAVE_PROFILE_MEASURE_H
#define CLEAVE_PROFILE_MEASURE_H

#include "profile/profile.h"
#include "program/program.h"

enum { MEASURE_DEVICE_BYTES = 256 };

/* A plan whose check is off by more is measured again. */
#define MEASURE_TOLERANCE 0.1

/* What a setting says about plans as a whole. */
struct measure_factors {
    double start_s; /* to start all workers and to hear that they are done; 0: unknown */
    double slowest; /* workers that wait for each other go on with the slowest: what they take then,
                       over what their costs say; 1: unknown */
    double cold;    /* what instructions take after a sleep, over back to back; 1: unknown */
};

/* Of this plan, else of another plan that was measured in the setting. They are kept as entries
 * of the setting, under "slowest of lenet5 128, data 2" and "slowest", with the figure as their
 * seconds. */
void measure_find_factors(profile *p, const struct profile_setting *setting,
                          const struct graph *graph, const struct plan *plan,
                          struct measure_factors *out);

/* Called between rounds, on the calling thread. A status other than OK stops the measuring;
 * measurements that were complete by then are in the profile. */
struct measure_callbacks {
    enum status (*on_progress)(void *user, double share, const char *what); /* NULL: none */
    bool (*stops)(void *user); /* NULL: never; STATUS_STOPPED comes out */
    void *user;
};

/* What a caller may wish of all measurements. A request carries it from the command to here. */
struct measure_options {
    bool look_only;  /* counts missing costs, and measures nothing */
    bool again;      /* what this process measured or checked before, too: it was contradicted */
    double budget_s; /* for the rounds of a team; 0: 1, up to 4 on an unsteady host */
    int least_rounds, most_rounds; /* 0: 3 and 1000 */
    struct measure_callbacks callbacks;
};

struct measure_request {
    /* Of all workers, lowered for training on one device, which says threads and precision of each
     * worker; it may be there to describe only. Workers that do the same may share a program. */
    const struct program *const *programs;
    int most_at_once; /* workers that one host will have; 0: as many as the plan has */
    bool alone;       /* costs alone are measured, too: with no neighbour busy */
    struct measure_options how;
};

struct measure_result {
    /* The settings of the costs: with all neighbours busy, and alone (load 1). */
    struct profile_setting setting, alone;
    int n_keys;      /* of the plan, each counted once */
    int n_missing;   /* of them, not in the profile, in either setting */
    int n_unchecked; /* look_only: of them, neither measured nor checked by this process */
    int n_measured;  /* costs that were added or replaced */
    double seconds;  /* spent on it */
    /* The share of rounds in which other programs had cores, and which were kept because too few
     * others were left: costs may be too high. */
    double disturbed;
    char device[MEASURE_DEVICE_BYTES];
};

/* At most as many workers compute at the same time as the cores can hold, one team after the other;
 * result->setting.load says how many. Fails as running the plan would: not enough memory, kernels
 * that do not exist. */
enum status profile_measure(profile *p, const struct measure_request *request,
                            struct measure_result *result) MUST_USE;

/* A backend's library and the processor it runs on: the device of a setting. "cpu oneDNN 2.6.3
 * avx2, loops avx2 on Intel(R) Xeon(R) CPU @ 2.20GHz". */
const char *profile_describe_device(const struct backend *backend, const device *d, char *text,
                                    size_t size);

/* The processor alone: the device of loader threads. */
const char *profile_describe_processor(char *text, size_t size);

/* ---- data ---- */

struct feed_request {
    const char *data; /* a spec of dataset.h; the train split is read */
    int64_t batch;
    bool augment;
    double budget_s; /* 0: 0.5 */
    struct measure_callbacks callbacks;
};

/* The time in which one loader thread makes a sample: from the profile, or measured and kept there
 * under "load SPEC CxHxW", family "load". *measured (unless NULL) says which. It is measured again
 * if other programs disturbed it and are gone. */
enum status profile_measure_feed(profile *p, const struct feed_request *request,
                                 struct profile_cost *cost, bool *measured) MUST_USE;

#endif
