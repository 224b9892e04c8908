/* shared.h: declarations for the files of src/plan alone. */
#ifndef CLEAVE_PLAN_SHARED_H
#define CLEAVE_PLAN_SHARED_H

#include "base/json.h"
#include "plan/plan.h"

/* Sizes of one cut sum to at most this, so that plan_part's products stay within 64 bits. */
enum { PLAN_MAX_SIZE_SUM = 1000000000 };

extern const char *const plan_schedule_names[PLAN_SCHEDULE_COUNT + 1]; /* end with NULL */

/* An empty plan: one micro-batch, ring, no cuts, all layers in stage 0; stages have no workers yet.
 */
enum status plan_create(const struct graph *graph, const char *name, int n_workers, int n_stages,
                        struct plan **out) MUST_USE;

/* Fills n_pieces from the cuts, and the workers with the stage's unless the layer has its own. Too
 * many pieces are left for plan_find_fault to refuse. */
void plan_settle_layer(struct plan *plan, int node);

/* ---- what a plan was made for (made_for.c) ---- */

/* "made_for", or the "model" of an older file. Texts belong to the JSON. */
enum status plan_parse_made_for(struct json_place top, struct plan_made_for *out) MUST_USE;
/* Whether the graph is what it says. */
enum status plan_check_made_for(struct json_place top, const struct plan_made_for *made,
                                const struct graph *graph) MUST_USE;
/* One line of a plan's file. */
enum status plan_print_made_for(FILE *f, const struct plan_made_for *made) MUST_USE;

/* plan_parse of a text that a request has changed: mistakes are STATUS_USAGE. */
enum status plan_parse_request(const char *text, const char *where, const struct graph *graph,
                               struct plan **out) MUST_USE;

/* ---- loops ---- */

/* A loop's number by its name, or by a plan's word for its use ("channels", "height", "width": then
 * it is loop_nest_find's); -1: none. */
int plan_find_loop(const struct loop_nest *nest, const char *name);
int plan_find_loop_by_use(const struct loop_nest *nest, const char *name);
extern const char *const plan_loop_uses[4]; /* the words; ends with NULL */

/* Whether the loop may be cut at all and has room for the parts; the batch always has. */
bool plan_can_cut(const struct loop_nest *nest, int loop, int64_t n_parts);

/* Whether a piece of the layer would read nothing but padding, and which. */
bool plan_reads_only_padding(const struct plan_layer *layer, const struct op_case *op, int *piece);

/* ---- faults ---- */

/* The first fault of a plan, and where it is: plan_check reports the message alone, plan_parse adds
 * the line. */
struct plan_fault {
    enum plan_place { FAULT_IN_PLAN, FAULT_IN_SYNC, FAULT_IN_STAGE, FAULT_IN_LAYER } place;
    int index;       /* the stage or node */
    int cut;         /* in layer->cut, where key is "cut" */
    const char *key; /* the member at fault: "workers", "stage", "cut", ... */
    char message[400];
};

/* False: the plan can run. */
bool plan_find_fault(const struct plan *plan, const struct graph *graph, struct plan_fault *fault);

/* ---- pipeline stages ---- */

/* The cost of a layer on so many samples, in operations; memory traffic is included (stages.c). */
double plan_node_work(const struct graph_node *node, int64_t samples);

/* Splits the nodes in graph order into n_stages runs, stage s having replicas[s] workers, so that
 * the largest work per worker is the least possible; stage[node] is filled for all nodes. Every run
 * has work; STATUS_USAGE says how many stages are possible if these are too many.
 */
enum status plan_balance_stages(const struct graph *graph, int micro_batches, int n_stages,
                                const int *replicas, int *stage) MUST_USE;

#endif
