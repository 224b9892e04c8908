/* cost.h: the time that computing and communicating take on a machine.
 *
 * Every formula of the cost model stands here, once. The clock (clock.h) takes the bytes as demands
 * on links that many calls share; the search (search/pricing.h) prices a call that has its links to
 * itself, at the time of its busiest link.
 *
 * A sum of B bytes over N members is the transfers of its method (comm.h):
 *
 *     method        bytes on the ways                                 latency, or least time
 *     ring          2 (N-1)/N B from each member to the next one      2 (N-1) latencies
 *     tree          B up and B down along each edge                   2 levels of latency + B/rate
 *     gather        B from each member to every other                 one latency
 *     half a ring   (N-1)/N B from each member to the next one        N-1 latencies
 *     hierarchical  B from each member to the first of its node, a    2 (latency + (M-1) B/rate)
 *                   ring over those, and B back                       for M members of a node,
 *                                                                     and the ring's
 *
 * Between workers that share a CPU host's memory a call takes the time measured
 * there (machine_curve), of which every member's core works a part. Between CPU hosts it takes
 * time of the cores beside the links.
 *
 *     struct cost c;
 *     TRY(cost_create(machine, memory, &c));
 *     struct cost_call call = {.transport = "threads", .n_bytes = 4096, .n_members = 2};
 *     const int devices[2] = {0, 5};
 *     cost_call(machine, &call, devices, &c);
 *     cost_alone_s(machine, &call, &c, 1)          // seconds if nothing else goes on
 */
#ifndef CLEAVE_COST_COST_H
#define CLEAVE_COST_COST_H

#include "base/arena.h"
#include "comm/comm.h"
#include "machine/machine.h"

/* The roofline: so many operations, and so many bytes to and from memory.
 *
 *     launch_s + scale * max(flops / rates[arithmetic].reached, bytes / reached_bytes_per_s)
 */
struct cost_work {
    double flops, bytes;
    enum arithmetic arithmetic; /* of which the device has a rate */
    double scale;               /* 0: 1 */
};
double cost_compute(const struct machine_kind *kind, const struct cost_work *work);

/* A message from the first to the second member, or a collective over all of them. */
struct cost_call {
    const char *transport; /* whose curves count on CPU hosts: "threads", "mpi" */
    bool reduces;          /* a collective */
    enum comm_kind kind;   /* of a collective */
    enum comm_method method;
    int node_size;     /* COMM_HIERARCHICAL */
    enum element type; /* of a collective */
    int64_t n_bytes;   /* of the message, or of the array */
    int n_members;
};

/* The cost of a call. */
struct cost {
    double latency_s; /* before anything flows */
    double least_s;   /* its flow takes at least so long */
    double sent_left; /* the share of a message that is still to come when its sender goes on */
    /* Where members do it together (comm_table.shared_work): the time that taking part takes each
     * of them, the rest if one member does it alone, and the share of it that one member does when
     * it polls once; 0: they do not. */
    double each_s, work_s, visit;
    /* Of every member's core, and for every byte that the member sends and receives. */
    double core_s, core_byte_s;
    int n_links, *links; /* that it uses */
    double *link_bytes;  /* by number of the link; zero where it is not used */
    bool *joins_nodes;   /* by number of the link: it leads from one node to another */
    /* While it is put together: the slowest link on any way, in bytes/s, and the largest latency.
     */
    double slowest, way_s;
};

/* Room for the links of the machine, in `memory`; every call uses it again. */
enum status cost_create(const struct machine *machine, arena *memory, struct cost *out) MUST_USE;

/* devices[i] is member i's; devices of a node stand next to each other. */
void cost_call(const struct machine *machine, const struct cost_call *call, const int *devices,
               struct cost *out);

/* Seconds of its core that member number i is busy with the call. */
double cost_core_s(const struct cost_call *call, const struct cost *cost, int i);

/* Seconds of the call while as many calls as `alike`, this one among them and all of the same size
 * but of other members, use the links between its nodes at the same time. */
double cost_alone_s(const struct machine *machine, const struct cost_call *call,
                    const struct cost *cost, int alike);

/* A call of n_bytes between members that share a CPU host's memory. */
struct machine_point cost_on_host(const struct machine *machine, const struct cost_call *call,
                                  double n_bytes);

/* Latency of a message from device to device. */
double cost_latency_s(const struct machine *machine, int from, int to);

#endif
