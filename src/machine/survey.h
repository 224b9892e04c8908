/* survey.h: the measurements, from one end of a transport. For src/machine alone.
 *
 * All ends of a transport, threads or processes, run the same survey: the members of a case run it
 * while the others wait, then all ends exchange their times. So all ends find the same figures and
 * take the same decisions.
 */
#ifndef CLEAVE_MACHINE_SURVEY_H
#define CLEAVE_MACHINE_SURVEY_H

#include "base/arena.h"
#include "machine/machine_measure.h"

enum { SURVEY_REPEATS_MAX = 31, SURVEY_SIZES = 5 };

/* One member's times of one repeat. */
struct survey_time {
    int64_t begin_ns, end_ns, cpu_ns;
};

/* Figures of a link from one node to another; 0 bandwidth: not measured. */
struct survey_link {
    double latency_s, bytes_per_s, burst_bytes;
};

struct survey {
    comm *end;
    const int *node_of; /* of each worker; NULL: all are on one node */
    const struct machine_measure_options *options;
    arena *memory;
    int n_nodes;
    char *data, *workspace;
    int64_t data_bytes; /* of the largest operation; data has room for more */
    int64_t area_bytes; /* of all members' data together */
    int64_t next_byte;  /* of data; no recent repeat used it */
    int *members;       /* [size] */
    struct survey_time *mine, *all;
    int done_cases, n_cases; /* for the progress */
    /* results */
    struct machine_curve *curves;
    int n_curves;
    struct survey_link *links; /* [n_nodes][n_nodes], from, to; NULL: one node */
    double exchange_s;         /* of a small exchange between all workers */
    double wait_share;         /* share of a core that waiting for another node takes */
    double far_byte_s;         /* core time of a byte from or to another node */
};

/* Measures everything. On failure it aborts the other ends, too. The arena holds the results;
 * data is freed. */
enum status survey_run(struct survey *s) MUST_USE;

/* The first worker of a node, in worker order; -1: none. */
int survey_first_worker(const struct survey *s, int node);

/* Polls a started operation until it is done, or the end's time-out. */
enum status survey_finish(comm *end, comm_op *op) MUST_USE;

/* survey_links.c: figures of every pair of nodes into s->links. */
enum status survey_measure_links(struct survey *s) MUST_USE;

/* survey_wait.c: wait_share, where there are several nodes. */
enum status survey_measure_wait(struct survey *s) MUST_USE;
/* far_byte_s, after the links and wait_share. */
enum status survey_measure_streams(struct survey *s) MUST_USE;

#endif
