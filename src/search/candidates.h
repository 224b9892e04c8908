/* candidates.h: every plan that is worth a look, run through the clock, and the one to use.
 *
 * Candidates are the named strategies with their variants (candidates_named.c), the per-layer
 * optimum (layers.h) and the best pipelines (pipelines.h). Most of them are far from the best, and
 * lowering them takes longer than all the rest; so each is estimated first (plan_price.h), they go
 * through the clock from the most promising on, and those that cannot win any more stay estimates:
 *
 *     data    always through the clock, first
 *     others  by estimate; skipped  where even the bound is above the best clocked time,
 *                                   where the estimate is far above it (CANDIDATES_HOPELESS),
 *                                   or where the search has done its work (CANDIDATES_INSTRS)
 *
 * Plans may use a part of the machine: its first 1, 2, 4, .. devices up to a node, whole nodes,
 * and halves of all. Each such number of workers is a level. Levels are searched from the smallest
 * on, each as if the machine ended there: larger levels have no part in it. So a machine has all
 * candidates of its parts, and the choice for it is never slower than the choice for a part would
 * be. Left out are levels whose devices could not even do the arithmetic in the time of the
 * best plan so far.
 *
 * Nothing depends on how fast this host searches: limits count instructions and compared sums. Only
 * where a limit of time is asked for, and where costs are measured, does time count.
 *
 * On this host the costs behind the clock are measured where they are not known. That takes a
 * second or two for a plan, so it is done only for plans that may win by the costs so far; each
 * measured plan makes the guesses about the others better.
 *
 * The fastest plan by the clock that fits into memory wins, unless a simpler one is as fast within
 * the error bar (candidates_beats). Plain data parallelism is always among them, and nothing
 * slower than it wins, however simple. On this host the best few by the clock can be run for real,
 * in turns (try_plans): then that decides.
 *
 *     struct candidate_request r = {.graph = g, .machine = m, .n_workers = 16, .prepare = prepare};
 *     struct candidate_set *set;
 *     TRY(candidates_find(&r, &set));
 *     set->list[set->best].plan ...
 *     candidates_destroy(set);
 */
#ifndef CLEAVE_SEARCH_CANDIDATES_H
#define CLEAVE_SEARCH_CANDIDATES_H

#include "predict/predict.h"

/* From the simplest to the most involved, for people to understand and to get right. */
enum candidate_family {
    FAMILY_SERIAL,
    FAMILY_DATA,
    FAMILY_OWT,
    FAMILY_HYBRID,
    FAMILY_MODEL,
    FAMILY_SPATIAL,
    FAMILY_SERVER,
    FAMILY_PER_LAYER, /* the optimum of the search */
    FAMILY_LAYERS,    /* stages without micro-batches */
    FAMILY_PIPELINE,  /* with them */
    FAMILY_COUNT
};

enum candidate_state {
    CANDIDATE_ESTIMATED, /* has not been through the clock: it would not have won */
    CANDIDATE_SPARE,     /* looked at only where nothing else fits; not handed over */
    CANDIDATE_CLOCKED,
    CANDIDATE_REFUSED, /* cannot be lowered; `why` says why */
};

enum { CANDIDATE_NAME_BYTES = 64 };

struct candidate {
    char name[CANDIDATE_NAME_BYTES]; /* "data", "1f1b 4x4, 16 micro-batches" */
    enum candidate_family family;
    int mesh[2]; /* FAMILY_HYBRID: parts of the batch, and of the channels; else 0 */
    bool plain;  /* data parallelism in its simplest form, or one worker */
    struct plan *plan;
    bool stale; /* trains with older weights: not to the losses of one worker */
    enum candidate_state state;
    double bound_s, estimate_s; /* of a step, without the clock (plan_price.h) */
    double step_s, error_s;     /* of a step: by the clock, else step_s is the estimate */
    double host_error; /* the part of that error that all plans on this host have in common */
    double compute_s, wait_s; /* of a step, mean over workers; clocked */
    bool trains;              /* clocked: its training step fits into memory */
    bool fits;                /* so does the rest, unless not checked; estimated: taken to */
    bool checked; /* that the short last batch and the test fit, too; the winner's always is */
    int64_t memory_bytes;              /* of the largest worker; unless checked, in a step */
    int64_t needed_bytes, limit_bytes; /* where it is scarcest */
    int64_t bytes_moved;
    double share[COST_ORIGIN_COUNT]; /* of the computing time */
    bool measured;                   /* on this host: nothing is left to measure */
    /* Of a step, in a trial beside the other finalists; 0: it was not in one. */
    double tried_s;
    double tried_noise; /* relative, of tried_s against that of the others */
    bool tried_behind;  /* clearly behind another: it cannot win */
    /* By the clock, before its costs were measured again: the trial was not within their error. 0:
     * it was. */
    double doubted_s;
};

struct candidate_request {
    const struct graph *graph;
    const struct machine *machine;
    int n_workers;                   /* of the machine, at least 1 */
    bool fewer;                      /* plans for fewer workers, too */
    bool brief;                      /* a quick answer: plain data parallelism alone on fewer */
    bool allow_stale;                /* a plan with older weights may win */
    bool named_only;                 /* no searches */
    int64_t micro_batches;           /* of pipelines; 0: tried */
    enum plan_batch_norm batch_norm; /* of all plans */
    enum precision precision;
    struct cost_scales scales;
    double limit_s;       /* of the whole search; 0: none, work is limited in its place */
    double most_worker_s; /* workers * step: a plan above it may not win; 0: no limit */
    /* How to predict a plan: everything of a predict_request for plan->n_workers workers. */
    enum status (*prepare)(void *user, const struct plan *plan, struct predict_request *out);
    /* Runs these plans for real, in turns, and compares them with the first one: sets their tried_s
     * (of none, if it was stopped early), tried_noise and tried_behind. The first one and any other
     * fit into memory together. NULL: the clock decides. */
    enum status (*try_plans)(void *user, int n, struct candidate *const *finalists);
    bool measures_again; /* costs that a trial contradicts */
    /* Between plans, and now and then while searching. NULL: none. */
    void (*on_progress)(void *user, int done, int all, const char *name);
    bool (*stops)(void *user); /* then the search ends with the best so far */
    void *user;
};

struct candidate_set {
    arena *memory;
    int n;
    struct candidate *list; /* those that fit by time, then those that do not */
    int best;               /* to use; -1: nothing fits */
    int fastest;            /* of those that may be used, whatever its margin; -1 */
    int data;               /* plain data parallelism on all workers (serial, if there is one) */
    int serial;             /* one worker; -1: it was not looked at */
    int n_tried;            /* candidates that were in a trial */
    double tried_scale;     /* there, the time of the first of them over that by the clock */
    double most_s;          /* of a step of the choice: as the choice for a part of the machine */
    bool complete;          /* false: stopped, or out of time or work */
    double search_s;        /* all of it: estimates, searches, the clock, measuring, the trial */
};

/* STATUS_USAGE for a request that makes no sense. That nothing fits is no failure. */
enum status candidates_find(const struct candidate_request *request,
                            struct candidate_set **out) MUST_USE;
void candidates_destroy(struct candidate_set *s); /* NULL is fine */

/* Whether a is faster than b by more than the error bar of the difference. Both take the same costs
 * and are off by them alike; only their differences count: of the difference in computing and of
 * that in waiting, each is as uncertain as figures of its kind are (docs/cost-model.md). Below
 * CANDIDATES_NOISE of a step nothing is a difference, below CANDIDATES_ROUGH where costs are not
 * measured: how much of a sum hides depends on them, too. For simplicity's sake no more is given up
 * than CANDIDATES_GIVEN_UP of a step, or CANDIDATES_GUESSED where costs are not measured. */
bool candidates_beats(const struct candidate *a, const struct candidate *b);
#define CANDIDATES_NOISE 0.005
#define CANDIDATES_ROUGH 0.03
#define CANDIDATES_GIVEN_UP 0.02
#define CANDIDATES_GUESSED 0.05
/* After a trial a simpler plan may be slower than the fastest one by so much of a step. */
#define CANDIDATES_TRIED 0.01
/* A trial takes plans that are by the clock not slower than its choice by more than this factor.
 * All plans of several workers were once predicted 1.4 and 1.7 times too slow, because the machine
 * was slow while their costs were measured; a trial soon drops those that really are slow, so it
 * takes at least so many. */
#define CANDIDATES_NEAR 1.5
enum { CANDIDATES_LEAST_TRIED = 6, CANDIDATES_MOST_TRIED = 8 };
/* Estimates are off by less than this factor, where they are held against that of data. */
#define CANDIDATES_HOPELESS 1.4
/* So many instructions the clock runs in a level at most, and so many questions whether to stop a
 * search asks, unless there is a limit of time; many times as many while nothing fits. */
#define CANDIDATES_INSTRS 8e6
#define CANDIDATES_QUESTIONS 1e6

/* One candidate more (its plan becomes the set's), through the clock: a hand edit. */
enum status candidates_add(const struct candidate_request *request, struct candidate_set *s,
                           const char *name, struct plan *plan, int *index) MUST_USE;

/* Measures the costs of a plan again, and runs the clock on them. */
enum status candidates_measure_again(const struct candidate_request *request,
                                     struct candidate *c) MUST_USE;

/* ---- choose.c ---- */

/* As far as its clocked time and its memory in a step tell. */
bool candidates_may_win(const struct candidate_request *request, const struct candidate *c);

/* Of a step: as tried, else by the clock, scaled as the trial says if there was one. */
double candidates_known_s(const struct candidate_set *s, int i);

/* Sets best and fastest; the chosen plan fits into memory in the whole run. */
enum status candidates_choose(const struct candidate_request *request,
                              struct candidate_set *s) MUST_USE;
/* The same once more, after the request has changed what a run has beside its training step. */
enum status candidates_choose_again(const struct candidate_request *request,
                                    struct candidate_set *s) MUST_USE;
/* Has the best few tried, data parallelism first among them, and chooses one of them: the fastest,
 * or a simpler one that is nearly as fast. If memory does not hold data parallelism and the clock's
 * choice at the same time, the clock decides. One worker that has no room beside data parallelism
 * is not in it, and may win all the same. Plans whose time in the trial is not within the error of
 * their costs are measured again. */
enum status candidates_try(const struct candidate_request *request,
                           struct candidate_set *s) MUST_USE;
/* Of the host's memory, where it is scarcest. */
double candidates_memory_share(const struct candidate *c);
/* The memory of the short last batch and of the test, too. */
enum status candidates_check_memory(const struct candidate_request *request,
                                    struct candidate *c) MUST_USE;

/* ---- candidates_named.c ---- */

struct candidate_list {
    arena *memory;
    int n, capacity;
    struct candidate *list;
    enum plan_batch_norm batch_norm; /* that plans get */
    char suffix[16];                 /* of their names: " on 8" */
};

/* Takes the plan over, also where it fails. */
enum status candidate_append(struct candidate_list *to, const char *name,
                             enum candidate_family family, struct plan *plan) MUST_USE;

/* Append, for so many workers: plain data parallelism, or serial; the other named strategies with
 * their variants; and data parallelism with micro-batches or recomputation, for when it does not
 * fit otherwise. */
enum status candidates_list_simple(const struct candidate_request *request, int n_workers,
                                   struct candidate_list *to) MUST_USE;
enum status candidates_list_others(const struct candidate_request *request, int n_workers,
                                   struct candidate_list *to) MUST_USE;
enum status candidates_list_thrifty(const struct candidate_request *request, int n_workers,
                                    struct candidate_list *to) MUST_USE;

#endif
