/* roads.h: the machine as the pricing sees it: what a message or a sum between workers takes, alone
 * on the links; inside of pricing.h.
 *
 * The formulas are the clock's (clock/demands.c), for one flow at a time and for many equal ones.
 * With a thousand workers not all are looked at: nodes that are alike stand for each other, and a
 * few workers for all of a node.
 */
#ifndef CLEAVE_SEARCH_ROADS_H
#define CLEAVE_SEARCH_ROADS_H

#include "base/arena.h"
#include "machine/machine.h"

enum { ROADS_CURVE_POINTS = 96, ROADS_MOST_SEEN = 32 /* of a node */ };

/* A run of workers on one node of the machine. */
struct road_node {
    int first, n;
    double in_bytes_per_s, out_bytes_per_s; /* INFINITY: nothing in the way */
    int first_seen, n_seen;                 /* of those looked at; none: others stand for it */
};

/* A machine_curve at powers of the root of 2, for quick reading. */
struct road_curve {
    bool known;
    double seconds[ROADS_CURVE_POINTS];
};

struct roads {
    const struct machine *machine;
    const char *transport;
    arena *memory;
    int n_workers;
    const int *device;  /* by worker */
    const int *node_of; /* by worker, into nodes */
    int n_nodes;
    struct road_node *nodes;
    int n_seen;
    const int *seen;                                /* workers that are looked at */
    const double *in_bytes_per_s, *out_bytes_per_s; /* by worker: its port */
    const double *in_s_per_byte, *out_s_per_byte;   /* the same, to multiply with */
    bool ports_alike;                               /* of all workers */
    const double *copy_bytes_per_s;                 /* by worker: its memory */
    double launch_s;                                /* the largest */
    double near_s, far_s; /* latency of a message within a node, and between neighbours: the most */
    bool on_cpu;          /* workers are cores: messages take their time, by the curve */
    struct road_curve message;
};

enum status roads_create(const struct machine *machine, const char *transport, int first_device,
                         int n_workers, arena *memory, struct roads *out) MUST_USE;

/* Whether two workers are devices of one kind behind equal ports; whether the nodes that they are
 * on have equal cards. */
bool roads_workers_alike(const struct roads *r, int a, int b);
bool roads_cards_alike(const struct roads *r, int a, int b);

/* Seconds of a message of n_bytes between workers of a CPU host. */
double roads_host_message_s(const struct roads *r, double n_bytes);

/* Seconds for n_bytes from one worker to another. */
double roads_message_s(const struct roads *r, int from, int to, double n_bytes);

/* A sum over `members`, while `alike` such sums go on at the same time on every node that these
 * members are on. */
double roads_ring_s(const struct roads *r, const int *members, int n, int alike, double n_bytes);
double roads_gather_s(const struct roads *r, const int *members, int n, int alike, double n_bytes);

#endif
