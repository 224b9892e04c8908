/* clock.h: the predicting interpreter: runs the programs of all workers on costs and links instead
 * of tensors, and says when each instruction would begin and end.
 *
 * It follows the executor instruction by instruction: the computing stream in order, the
 * communicating stream started in order, the same waits. A transfer or reduction under way is a
 * flow with demands on resources; resources are the cores of CPU workers (an instruction computes
 * on them, and so does a transfer that copies or adds), and links. Flows share resources max-min
 * fairly: what one flow cannot use of its share goes to the others. Where a transport's members
 * share the work (comm_table.shared_work), waiting members do it, and computing members between two
 * instructions.
 *
 *     worker 0  [forward conv1][forward conv2]...[backward fc][backward conv2]
 *     core 0     ^ flow: 1.2 ms of it              ^ shares the core with the sum of fc's gradients
 *     link 0-1                                     ^ flow: 4 MB of it
 *
 * An instruction that computes takes between its cost alone and its cost with all neighbours busy,
 * by how many of them are busy meanwhile; after a sleep at least its cost alone with cold caches.
 *
 *     struct clock_worker workers[2] = {{program0, costs0, 0}, {program1, costs1, 1}};
 *     struct clock_options o = {.machine = m, .transport = "threads"};
 *     struct clock_result r;
 *     TRY(clock_run(workers, 2, &o, memory, &r));        // r points into `memory`
 */
#ifndef CLEAVE_CLOCK_CLOCK_H
#define CLEAVE_CLOCK_CLOCK_H

#include "base/arena.h"
#include "machine/machine.h"
#include "program/work.h"

struct clock_worker {
    /* Workers that do the same on other samples may share one (program_create_all). */
    const struct program *program;
    const struct instr_cost *costs; /* by instruction; of communicating ones not read */
    int device;                     /* of the machine */
};

/* The data side, per worker: a step's samples must have been made before its first LOAD. */
struct clock_feed {
    double sample_s; /* one thread's time to make a sample; 0: data cost nothing */
    int threads;     /* that make them */
};

struct clock_options {
    const struct machine *machine;
    const char *transport; /* whose curves count for workers of one CPU host */
    /* What a step of several workers of a CPU host costs beside its instructions; 0: the machine's.
     */
    double step_s;
    /* Times every cost: what workers that wait for each other take, of which now one and now
     * another is the slowest; 0: 1. */
    double slowest;
    /* What an instruction on a CPU takes after a sleep and alone, over its cost alone: caches are
     * cold. It counts from the first instruction after a wait of more than 1 ms to the next wait;
     * 0: 1. */
    double cold;
    struct clock_feed feed;
    bool free_communication; /* transfers and sums take no time: the bound */
    bool keep_times;         /* fill clock_worker_result.times */
};

struct clock_time {
    double begin_s, end_s; /* from the begin of the run */
};

struct clock_worker_result {
    double compute_s;     /* inside computing instructions */
    double wait_s;        /* computation waited for communication or data */
    double communicate_s; /* something was under way */
    double load_s;        /* of wait_s, for data */
    int64_t memory_bytes[BUFFER_CLASS_COUNT];
    int64_t sent_bytes;
    struct clock_time *times; /* by instruction; NULL unless kept */
};

struct clock_result {
    double run_s;   /* one run of the programs */
    double step_s;  /* per step */
    double error_s; /* of step_s: about how far off it may be, two times out of three */
    /* Shares of all computing time by where the costs come from. */
    double share[COST_ORIGIN_COUNT];
    int64_t bytes_moved; /* by all workers, per step */
    double *link_bytes;  /* by link of the machine, per step */
    struct clock_worker_result *workers;
};

/* How much longer n workers that begin together take on fewer places than with a perfect division;
 * stretch_s: what each computes until they wait for each other again. 1 if all have a place. */
double clock_unevenness(int n, int places, double stretch_s);

enum status clock_run(const struct clock_worker *workers, int n_workers,
                      const struct clock_options *options, arena *memory,
                      struct clock_result *result) MUST_USE;

#endif
