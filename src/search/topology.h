/* topology.h: the workers of a search and the machine below them: nodes, ports, latencies, and the
 * time of a sum (cost.h) alone on the links; inside of pricing.h.
 *
 * Of a thousand workers only a sample is looked at: nodes that are alike stand for each other, and
 * a few workers for all of a node.
 */
#ifndef CLEAVE_SEARCH_TOPOLOGY_H
#define CLEAVE_SEARCH_TOPOLOGY_H

#include "cost/cost.h"

enum { TOPOLOGY_CURVE_POINTS = 96, TOPOLOGY_MOST_SAMPLED = 32 /* of a node */ };

/* A run of workers on one node of the machine. */
struct topology_node {
    int first, n;
    double in_bytes_per_s, out_bytes_per_s; /* INFINITY: nothing in the way */
    int first_sampled, n_sampled;           /* of those looked at; none: others stand for it */
};

struct topology {
    const struct machine *machine;
    const char *transport;
    arena *memory;
    int n_workers;
    const int *device;  /* by worker */
    const int *node_of; /* by worker, into nodes */
    int n_nodes;
    struct topology_node *nodes;
    int n_sampled;
    const int *sampled;                             /* workers that are looked at */
    const double *in_bytes_per_s, *out_bytes_per_s; /* by worker: its port */
    const double *in_s_per_byte, *out_s_per_byte;   /* the same, to multiply with */
    bool ports_alike;                               /* of all workers */
    const double *copy_bytes_per_s;                 /* by worker: its memory */
    double launch_s;                                /* the largest */
    double near_s, far_s; /* latency of a message within a node, and between neighbours: the most */
    bool on_cpu;          /* workers are cores: messages take their time, by the curve */
    double host_message_s[TOPOLOGY_CURVE_POINTS]; /* of powers of the root of 2 bytes */
    int *members;                                 /* devices of the sum that is looked at */
    struct cost *cost;                            /* of it */
};

enum status topology_create(const struct machine *machine, const char *transport, int first_device,
                            int n_workers, arena *memory, struct topology *out) MUST_USE;

/* Whether two workers are devices of one kind behind equal ports; whether the nodes that they are
 * on have equal cards. */
bool topology_workers_alike(const struct topology *t, int a, int b);
bool topology_cards_alike(const struct topology *t, int a, int b);

/* Seconds of a message of n_bytes between workers of a CPU host. */
double topology_host_message_s(const struct topology *t, double n_bytes);

/* A sum over n members, while `alike` such sums go on at the same time on every node that these
 * members are on. */
struct topology_sum {
    enum comm_method method;
    int node_size; /* COMM_HIERARCHICAL */
    enum element type;
    int n, alike;
};
double topology_sum_s(const struct topology *t, const struct topology_sum *sum, const int *members,
                      double n_bytes);

#endif
