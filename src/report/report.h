/* report.h: plans, predictions and runs as one HTML file that opens offline.
 *
 *     const char *paths[] = {"runs/lenet5-001", "runs/lenet5-002"};
 *     struct report_request r = {.n_paths = 2, .paths = paths, .output = "report.html",
 *                                .build_graph = build, .open_plan = open};
 *     TRY(report_write(&r));
 *
 * C gathers the data and writes them as one JSON element; the scripts of web/ draw them. Charting
 * and layout are those of libraries (Chart.js, D3, dagre), which the build compiles in together
 * with web/ where it finds them.
 *
 * A path is one of
 *     a directory of `cleave train --run`
 *     a file: a plan; what predict, plan and bench limits print with --json; a trace; the JSON
 *     lines of a training
 *
 * Each directory is a subject of the report. Files belong to the last subject that has none of
 * their kind yet; a second one of a kind begins a subject of its own. Several subjects are
 * compared.
 */
#ifndef CLEAVE_REPORT_REPORT_H
#define CLEAVE_REPORT_REPORT_H

#include "model/graph.h"
#include "plan/plan.h"

#include <jansson.h>
#include <stdio.h>

enum { REPORT_PATH_BYTES = 4096 };

/* Builds the network that a plan or a prediction names; `data` NULL and `batch` 0: not said there.
 * The graph is the report's, to be destroyed. */
typedef enum status report_graph_builder(const char *model, const char *data, int64_t batch,
                                         void *user, struct graph **out);

/* Reads a plan's file, and builds the network that it was made for; both are the report's. */
typedef enum status report_plan_opener(const char *path, void *user, struct graph **graph,
                                       struct plan **plan);

/* Predicts a plan's file for which the report was given nothing else: the JSON of `cleave predict`,
 * and its timeline, packed (report_pack_trace). Both are the report's. */
typedef enum status report_forecaster(const char *plan_path, void *user, json_t **prediction,
                                      json_t **timeline);

/* The traffic of each named strategy: [{"name", "bytes_moved", "memory_bytes"}, ..]. */
typedef enum status report_traffic_counter(const char *model, const char *data, int64_t batch,
                                           int n_workers, void *user, json_t **out);

struct report_request {
    int n_paths;
    const char *const *paths;
    const char *output;
    report_graph_builder *build_graph;
    report_plan_opener *open_plan;
    report_forecaster *forecast;           /* NULL: plans are shown without costs */
    report_traffic_counter *count_traffic; /* NULL: of plans that are there alone */
    void *user;
};

/* STATUS_USAGE for a path that is nothing of the above; STATUS_FAILED for a file that cannot be
 * read or written, that is broken (with line and column, or the member), and where the build had no
 * libraries. */
enum status report_write(const struct report_request *request) MUST_USE;

/* STATUS_FAILED where the build had no libraries to draw with: no report can be written. */
enum status report_check_build(void) MUST_USE;

/* The network as the report draws it; also kept with a run. NULL if memory ran out. */
json_t *report_network(const struct graph *graph);

/* Adds to the array the timelines of a trace, one for predicted and one for measured times, packed
 * (trace_packing.c). STATUS_FAILED with the line where it is broken. */
enum status report_read_trace(const char *path, json_t *timelines) MUST_USE;
/* The same of a stream, from where it is on; `name` is for messages. */
enum status report_pack_trace(FILE *f, const char *name, json_t *timelines) MUST_USE;

/* ---- the directory of a run ---- */

#define REPORT_CONFIG "config.json"
#define REPORT_VERSIONS "versions.json"
#define REPORT_NETWORK "network.json"
#define REPORT_PLAN "plan.json"
#define REPORT_MACHINE "machine.json"
#define REPORT_PREDICTION "prediction.json"
#define REPORT_SEARCH "search.json"
#define REPORT_LIMITS "limits.json" /* of bench limits, if someone put it there */
#define REPORT_EVENTS "events.jsonl"
#define REPORT_TRACE "trace.json"
#define REPORT_PREDICTED_TRACE "predicted-trace.json"

#endif
