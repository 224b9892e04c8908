/* chooser.h: the search for a plan from end to end: a machine, forecasts of it, and the
 * candidates on it.
 *
 *     struct chooser c;
 *     TRY_GOTO(st, chooser_open(&c, &options), out);
 *     TRY_GOTO(st, chooser_find(&c, c.n_workers, &set), out);
 *     ... set->list[set->best].plan ...
 *     out: candidates_destroy(set); chooser_close(&c);
 *
 * Workers of this host share its cores, so each number of workers has a forecast of its own there,
 * which is opened (and its links measured) when the first plan for so many asks for it. There the
 * best few can be tried for real, too (trial.h).
 */
#ifndef CLEAVE_SEARCH_CHOOSER_H
#define CLEAVE_SEARCH_CHOOSER_H

#include "predict/forecast.h"
#include "search/candidates.h"

enum { CHOOSER_MAX_FORECASTS = 16 };

struct chooser_options {
    struct forecast_options forecast;
    int workers;           /* 0: all devices of the machine */
    const char *without;   /* nodes that are lost: "node2" or "2", with commas; NULL: none */
    int64_t micro_batches; /* 0: tried */
    enum plan_batch_norm batch_norm;
    bool allow_stale, named_only, fewer;
    double limit_s;           /* of a search; 0: 60 on this host, where costs are measured; else
                                 none: the work is limited (candidates.h) */
    double most_worker_hours; /* of an epoch; 0: no limit */
    double try_s; /* on this host, the best few are trained in turns for so long; 0: they are not */
    bool quiet;
    /* In place of showing progress, between candidates; whether to end with the best so far, beside
     * Ctrl-C. Either may be NULL; both get the user of forecast.measure.callbacks. */
    void (*on_candidate)(void *user, int done, int all, const char *name);
    bool (*stops)(void *user);
};

struct chooser {
    const struct chooser_options *options;
    struct forecast_options forecast_options;
    int n_forecasts;
    struct chooser_forecast {
        int workers;
        struct forecast forecast;
    } forecasts[CHOOSER_MAX_FORECASTS];
    struct forecast *forecast; /* for n_workers */
    int n_workers;             /* that a plan may have at most */
    int64_t start_ns;          /* of the search that runs */
    double limit_s;            /* its limit */
    /* Images in a step of the test, where only a smaller batch of the test than asked for fits
     * beside any plan; 0: as asked. */
    int64_t eval_batch;
    struct forecast_batch smaller; /* with that test */
};

enum status chooser_open(struct chooser *c, const struct chooser_options *options) MUST_USE;
void chooser_close(struct chooser *c);

/* Among plans for at most so many workers. Stopping (Ctrl-C) is no failure. */
enum status chooser_find(struct chooser *c, int n_workers, struct candidate_set **out) MUST_USE;
/* One more plan beside them. */
enum status chooser_add(struct chooser *c, struct candidate_set *set, const char *name,
                        struct plan *plan, int *index) MUST_USE;

/* OK if there is a best; else STATUS_NO_FIT or STATUS_FAILED with the reason. */
enum status chooser_refuse(const struct chooser *c, const struct candidate_set *set) MUST_USE;

/* The request with which a plan is predicted. */
enum status chooser_request(struct chooser *c, const struct plan *plan,
                            struct predict_request *out) MUST_USE;

double chooser_epoch_s(const struct chooser *c, double step_s);

#endif
