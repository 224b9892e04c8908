/* measure.h: measures communication on this host and between hosts, through the transports' own
 * tables (comm/comm.h), and puts the times into a machine.
 *
 *     struct machine *m;
 *     TRY(machine_discover(1, &m));
 *     struct machine_measure_options o = {.workers = 4, .bind = bind_worker};
 *     TRY(machine_measure_threads(m, &o));               // curves of "threads", wake_s, step_s
 *
 * As processes, every rank calls the same in the same order and gets the same machine:
 *
 *     TRY(machine_join(process, own, node_of_rank, &m));        // one machine out of all hosts
 *     TRY(machine_measure_processes(m, process, node_of_rank, &o));
 *
 * It measures at 1 KiB, 16 KiB, 256 KiB, 4 MiB and 32 MiB, each as the median of several repeats on
 * idle cores:
 *   - messages from one worker to another of the same node
 *   - sums (gather, ring, tree) over 2, 4, 8, .. and all workers of a node
 *   - with several nodes: messages between two of them, sums over all workers, and the
 *     latency and bandwidth of each pair of nodes, from which each node's links follow
 *   - wake_s: from signalling a condition variable until the sleeping thread runs
 *   - step_s: starting and joining all workers; of processes, an exchange
 *   - reached_bytes_per_s: the memory bandwidth when all workers copy (threads)
 *
 * A curve ends early if the next size would take longer than half a second.
 */
#ifndef CLEAVE_MACHINE_MEASURE_H
#define CLEAVE_MACHINE_MEASURE_H

#include "machine/machine.h"

struct machine_measure_options {
    int workers;   /* of machine_measure_threads; 1: no curves */
    int threads;   /* of each worker, for the memory's bandwidth; 0: 1 */
    double case_s; /* about how long each size of each curve may take; 0: 0.06 s, which is 2 s
                      in all for two workers */
    int64_t largest_bytes; /* no larger size is measured; 0: 32 MiB. Each worker needs that much */
    /* Each measuring thread calls this before it touches its memory, to bind itself to the worker's
     * cores. NULL: no binding. */
    void (*bind)(int worker, int n_workers, void *user);
    /* One thread calls this now and then with the finished share, 0 to 1. May be NULL. */
    void (*progress)(double share, void *user);
    void *user;
};

/* Replaces the machine's curves of "threads", its wake_s and step_s, and the reached memory
 * bandwidth of the first device's kind. */
enum status machine_measure_threads(struct machine *m,
                                    const struct machine_measure_options *options) MUST_USE;

/* Joins the machines that the processes discovered on their hosts: a node for each number in
 * node_of_rank (ascending from 0 in rank order; as many as process->size), as its first rank sees
 * it. Needs as many devices in it as ranks. Nodes are joined by a usual network (100 Gbit/s) until
 * it is measured. */
enum status machine_join(comm *process, const struct machine *own, const int *node_of_rank,
                         struct machine **out) MUST_USE;

/* Replaces the curves of the process's transport, wake_s and step_s, and the links between nodes.
 * `m` has as many nodes as node_of_rank names. */
enum status machine_measure_processes(struct machine *m, comm *process, const int *node_of_rank,
                                      const struct machine_measure_options *options) MUST_USE;

#endif
