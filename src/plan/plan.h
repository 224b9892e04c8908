/* plan.h: how a training step is split: small, readable, editable JSON.
 *
 * Every layer (a node of the graph) has a stage and cuts. The stage has workers; the cuts split the
 * layer's loops (op.h) into parts; the parts of all cut loops form a mesh, in the order in which
 * the cuts are written (the last one changes fastest), and piece number i of the mesh runs on the
 * stage's i-th worker, or on the i-th of the layer's own list:
 *
 *     {
 *       "cleave_plan": 2,                      the version of the format; 1 is read, too
 *       "name": "owt",                         for people; any text
 *       "made_for": {                          optional, and so is each of its members; see below
 *         "model": "alexnet", "data": "imagenet", "input": [3, 224, 224], "classes": 1000,
 *         "batch": 128, "precision": "float", "optimizer": "sgd", "machine": "1x4:p100",
 *         "calibrate": {"samples_per_s": 1200, "batch": 128}, "digest": "90b1dd2ea1d0b2f7"},
 *       "model": "alexnet",                    without "made_for": optional, the network
 *       "workers": 4,
 *       "stages": [ {"workers": [0, 1, 2, 3]} ],
 *       "default": {"cut": {"n": 4}},          for layers that are not named below; a cut that a
 *                                              layer does not have (or may not have) is dropped
 *       "layers": {
 *         "features.0": {"cut": {"n": 2, "p": 2}},
 *         "classifier.1": {"cut": {"o": [1024, 1024, 1024, 1024]}},
 *         "classifier.4": {"cut": {"o": 2}, "workers": [0, 2]},
 *         "loss": {"stage": 0, "cut": {"n": 4}}
 *       },
 *       "micro_batches": 1,
 *       "schedule": "1f1b",                    gpipe | 1f1b | pipedream
 *       "window": 8,                           pipedream: steps between two flushes
 *       "recompute": ["features.4"],           forward again instead of keeping the output;
 *                                              or a number of segments, or "auto"; see below
 *       "batch_norm": "batch",                 statistics of the whole micro-batch, or, with
 *                                              "worker", of each worker's samples in it
 *       "sync": {"method": "ring",             ring | tree | hierarchical | server
 *                "bucket_bytes": 26214400,     gradients are reduced in buckets of this size
 *                "workers_per_node": 2,        hierarchical
 *                "servers": [3],               server: workers that are in no stage
 *                "asynchronous": false}        server
 *     }
 *
 * A stage's default cuts may stand in the stage: {"workers": [0, 1, 2], "cut": {"n": 3}}; they come
 * before "default". In both, but not under "layers", a loop may be called by what it does, because
 * its name differs from op to op:
 *
 *     channels   k of a convolution (g of one with groups), o of a linear layer, c of the others
 *     height     p or h
 *     width      q or w
 *
 * A default cut is left out for a layer that does not have the loop, may not cut it, or has fewer
 * iterations than parts (n aside); the same under "layers" is an error. A layer with a "cut" of its
 * own, be it {}, gets none of the defaults. A layer with fewer pieces than its stage has workers
 * runs on the first of them. A layer without a stage is in the stage of its first input (the first
 * layers in stage 0), or of the last named layer before it if that is later. An edge never goes
 * back to an earlier stage.
 *
 * A part list of sizes that do not sum to the loop's extent is an error, except for the batch loop
 * n: there sizes are proportions, because batches (micro-batches, a short last batch) differ. Sizes
 * are at least 1 and sum to at most 10^9. Loop n may have fewer samples than parts: then some
 * pieces are empty. Every other loop must have at least as many iterations as parts.
 *
 * Layers that run as one (a convolution, the sum and the activation behind it) keep the output of
 * the last of them alone. That one, mostly the activation, is named in "recompute": features.4 is
 * the ReLU of features.3, which keeps nothing. The name of another changes nothing.
 *
 * "made_for" says what the plan was made for, so that its file alone is enough to predict it or to
 * train with it. A plan for another network is refused. "input" (of a sample) and "classes" may be
 * others than those of the graph, as long as the layers are the same. Where they are not others,
 * "digest", a number that stands for the network's layers and shapes, must be the graph's.
 * "machine" may be a file: then "machine_digest" stands for its bytes.
 */
#ifndef CLEAVE_PLAN_PLAN_H
#define CLEAVE_PLAN_PLAN_H

#include "base/arena.h"
#include "model/graph.h"

enum { PLAN_VERSION = 2, PLAN_MAX_WORKERS = 4096, PLAN_MAX_WINDOW = 65536 };
enum { PLAN_BUCKET_BYTES = 25 << 20 }; /* where nothing else is asked for */

enum plan_schedule { PLAN_GPIPE, PLAN_1F1B, PLAN_PIPEDREAM, PLAN_SCHEDULE_COUNT };
enum plan_sync { PLAN_RING, PLAN_TREE, PLAN_HIERARCHICAL, PLAN_SERVER, PLAN_SYNC_COUNT };
extern const char *const plan_sync_names[PLAN_SYNC_COUNT + 1]; /* ends with NULL */

/* The samples over which batch norm takes its statistics: those of the whole (micro-)batch, so that
 * a step has the losses of one worker, or those that a worker has of it, as with
 * DistributedDataParallel, so that cutting the batch needs no sums. Then running statistics differ
 * between workers: the first holder's are saved, and used in tests. */
enum plan_batch_norm { PLAN_NORM_BATCH, PLAN_NORM_WORKER, PLAN_NORM_COUNT };
extern const char *const plan_batch_norm_names[PLAN_NORM_COUNT + 1]; /* ends with NULL */

/* One loop cut into parts. The loop that goes over the batch (USE_BATCH) is special: micro-batches
 * and a short last batch change its extent. Part i of a loop of `extent` iterations is
 * plan_part(cut, i, extent). */
struct plan_cut {
    int loop; /* number in the layer's loop nest, which says what it goes over */
    int n_parts;
    const int64_t *sizes; /* n_parts of them; NULL: even */
};

struct plan_layer {
    int stage;
    int n_cuts; /* only cuts into more than one part are kept */
    struct plan_cut cut[OP_MAX_LOOPS];
    int n_pieces;       /* product of the parts; 1 without cuts */
    const int *workers; /* n_pieces of them: workers[i] runs piece i */
    bool recompute;
};

struct plan_stage {
    int n_workers;
    const int *workers;
};

/* What a plan was made for. NULL and 0: that is not recorded. */
struct plan_made_for {
    const char *model, *data;
    struct shape input; /* of a sample, so without the batch: [c, h, w] of images */
    int64_t classes, batch;
    const char *precision, *optimizer;
    const char *machine;        /* local, a name, a string, or the path of a file */
    const char *machine_digest; /* of the file's bytes; NULL: it is none */
    double calibrate;           /* samples per second of one device alone */
    int64_t calibrate_batch;    /* in batches of this size */
    const char *digest;         /* of the network, plan_digest */
};

struct plan {
    arena *memory; /* owns everything below */
    const char *name;
    struct plan_made_for made_for;
    int n_workers;
    int n_stages;
    struct plan_stage *stages;
    int n_layers;              /* == graph->n_nodes */
    struct plan_layer *layers; /* by node number; the input node 0 has no pieces of its own */
    int micro_batches;         /* of one step */
    enum plan_schedule schedule;
    int window; /* PLAN_PIPEDREAM: steps from flush to flush; else 1 */
    enum plan_sync sync;
    int64_t bucket_bytes;
    int workers_per_node;
    int n_servers;
    const int *servers;
    bool asynchronous; /* PLAN_SERVER: the server applies gradients worker by worker */
    enum plan_batch_norm batch_norm;
};

/* The range of part i of a loop with `extent` iterations. For a cut with sizes whose sum is another
 * number than extent (the batch loop), boundaries are scaled and rounded. */
struct range plan_part(const struct plan_cut *cut, int i, int64_t extent);

/* The box of piece number i of a layer: for every loop of `nest` its range. */
void plan_piece_box(const struct plan_layer *layer, const struct loop_nest *nest, int i,
                    struct box *box);

/* Reads, resolves defaults against the graph, and checks. Every mistake is STATUS_FAILED and begins
 * with "FILE:LINE: "; a sound plan of another network is STATUS_USAGE. */
enum status plan_read(const char *path, const struct graph *graph, struct plan **out) MUST_USE;

/* The same from text; `where` stands for the file's name in errors. */
enum status plan_parse(const char *text, size_t n_bytes, const char *where,
                       const struct graph *graph, struct plan **out) MUST_USE;

/* Writes a plan so that plan_read gives the same one back; every layer is written out in full. The
 * caller frees *out. */
enum status plan_write(const struct plan *plan, const struct graph *graph,
                       const char *path) MUST_USE;
enum status plan_print(const struct plan *plan, const struct graph *graph, char **out) MUST_USE;

/* What the file says that its plan was made for, without a graph; of a file of version 1 that is
 * the model at most. The texts are copied to the arena. Mistakes as of plan_read. */
enum status plan_read_made_for(const char *path, arena *memory, struct plan_made_for *out) MUST_USE;

/* With its texts, which go to the arena. */
enum status plan_copy_made_for(arena *memory, const struct plan_made_for *from,
                               struct plan_made_for *to) MUST_USE;

/* Notes in the plan what it was made for: the model, its input, classes, batch and digest are the
 * graph's, the rest is that of `made`, whose texts are copied. */
enum status plan_set_made_for(struct plan *plan, const struct graph *graph,
                              const struct plan_made_for *made) MUST_USE;

/* Into a buffer, which is returned: 16 digits that stand for the graph's layers, their order,
 * inputs, attributes and shapes, whatever the batch; and for a file's bytes. */
enum { PLAN_DIGEST_BYTES = 17 };
const char *plan_digest(const struct graph *graph, char digest[PLAN_DIGEST_BYTES]);
const char *plan_digest_bytes(const void *bytes, size_t n_bytes, char digest[PLAN_DIGEST_BYTES]);

/* Whether it trains with older weights than one worker would, so that the losses differ. */
bool plan_is_stale(const struct plan *plan);

/* Whether outputs of some layer are computed again instead of kept. */
bool plan_recomputes(const struct plan *plan);

/* Whether a worker's batch norms see its own samples alone: so asked for, or an asynchronous
 * server's workers, each of which is a run of its own. */
bool plan_norms_by_worker(const struct plan *plan);

/* Whether the layer, a plan's for `op`, is whole or cut along the batch alone. */
bool plan_cuts_only_batch(const struct plan_layer *layer, const struct op_case *op);

/* Whether it matters which samples batch norms see: one of them has its batch cut. */
bool plan_cuts_norms(const struct plan *plan, const struct graph *graph);

/* Of the nest's loops that statistics are taken over and that a piece has a part of (a bit each,
 * op_piece.shared_statistics): those over whose parts the pieces add up their statistics.
 * by_worker: plan_norms_by_worker. */
unsigned plan_summed_statistics(bool by_worker, const struct loop_nest *nest, unsigned loops);

/* The server that keeps a parameter of the graph, or -1. A server keeps trained parameters that no
 * cut loop indexes; the servers take them in turn. A parameter that a cut loop indexes stays in
 * parts with the workers that compute with them, and these workers update it. */
int plan_server_of(const struct plan *plan, const struct graph *graph, int param);

/* Whether the plan can run on the graph: called by plan_read and plan_build; STATUS_USAGE names the
 * part that cannot, and the reason. Among the rules:
 *   - every worker is in exactly one stage, or is a server; a layer's workers are its stage's, and
 *     no worker has two pieces of one layer;
 *   - a cut loop exists, may be cut (op.h), and has at least as many iterations as parts (n not);
 *   - convolution: k is cut only where groups is 1; with g cut, k is not;
 *   - a piece reads more than padding;
 *   - no edge goes back to an earlier stage; every stage has a layer; the loss is in the last
 * stage;
 *   - micro-batches at least 1 and at most the batch; schedule pipedream has one micro-batch a step
 *     and does not go with a server; an asynchronous server goes with one micro-batch a step and
 *     one stage, whose layers are all cut along n alone over all of its workers, into the same
 * parts on the same workers. */
enum status plan_check(const struct plan *plan, const struct graph *graph) MUST_USE;

/* A plan of its own: `plan` may be destroyed before it. */
enum status plan_copy(const struct plan *plan, struct plan **out) MUST_USE;
void plan_destroy(struct plan *p); /* NULL is fine */

/* ---- recomputation (segments.c) ---- */

enum { PLAN_SEGMENTS_AUTO = -1, PLAN_MAX_SEGMENTS = 4096 };

/* Splits the layers of every stage into at most n_segments segments (PLAN_SEGMENTS_AUTO: as many as
 * need the least memory). Forward keeps the last output of each segment alone, backward runs a
 * segment forward again before it goes through it. One segment keeps nothing but the stage's
 * inputs, which saves memory only where other micro-batches lie between forward and backward. */
enum status plan_recompute_segments(struct plan *plan, const struct graph *graph,
                                    int n_segments) MUST_USE;

/* ---- strategies: functions that write a plan (strategies.c) ---- */

struct plan_request {
    int n_workers;
    int micro_batches;    /* 0: the strategy's own choice; with one stage each goes forward and
                             backward before the next (gradient accumulation) */
    enum plan_sync sync;  /* PLAN_RING by default; PLAN_SERVER: the last workers are servers */
    int64_t bucket_bytes; /* 0: 25 MiB */
    int workers_per_node; /* 0: all in one */
    int n_servers;        /* ps, PLAN_SERVER; 0: one for every four workers, at least one */
    bool asynchronous;    /* ps */
    int window;           /* pipedream; 0: 4 times the stages */
    enum plan_batch_norm batch_norm;
    int segments;        /* of plan_recompute_segments; 0: nothing is recomputed */
    const int *replicas; /* pipelines: workers of each stage; NULL: one each */
    int n_stages;        /* pipelines, with replicas */
    int model_workers;   /* hybrid: workers along channels; 0: the divisor of n_workers that is
                            nearest to its square root */
};

/* Parts of a request that only some strategies use. */
enum plan_takes {
    PLAN_TAKES_SYNC = 1 << 0,
    PLAN_TAKES_SERVERS = 1 << 1, /* and asynchronous */
    PLAN_TAKES_WINDOW = 1 << 2,
    PLAN_TAKES_REPLICAS = 1 << 3,
    PLAN_TAKES_MODEL_WORKERS = 1 << 4,
};

struct plan_strategy {
    const char *name;
    const char *about; /* one line for people */
    unsigned takes;    /* enum plan_takes: plan_build passes over the rest of a request */
    enum status (*build)(const struct plan_strategy *self, const struct graph *graph,
                         const struct plan_request *request, struct plan **out);
    const void *how; /* what build needs to know of this strategy; NULL: nothing */
};

/* The numbers of micro-batches that are worth a try: 2, 4, 8, .., and at last one sample in each.
 * The next one above m; 0: there is none. */
int64_t plan_more_micro_batches(int64_t m, int64_t batch);

/* serial data model spatial owt layers gpipe 1f1b pipedream ps hybrid; ends with a NULL name. */
const struct plan_strategy *plan_strategies(void);

/* Builds and checks. The case of the name does not matter. STATUS_USAGE with the nearest match for
 * an unknown one, or where the strategy cannot use so many workers for this network (with the most
 * it can use). */
enum status plan_build(const char *strategy, const struct graph *graph,
                       const struct plan_request *request, struct plan **out) MUST_USE;

#endif
