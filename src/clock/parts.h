/* parts.h: what the files of the clock share. Not for use outside this room.
 *
 *     clock.c        sets up, runs the events, sums up
 *     workers.c      the two streams of a worker, as the executor runs them
 *     transfers.c    messages and reductions: which members have arrived
 *     demands.c      what one takes of cores and links, by cost.h
 *     flows.c        flows that share cores and links
 *     shared_work.c  the work that members share: while they wait, and between instructions
 *     events.c       the queue of events
 */
#ifndef CLEAVE_CLOCK_PARTS_H
#define CLEAVE_CLOCK_PARTS_H

#include "clock/clock.h"
#include "cost/cost.h"

/* ---- events.c: a heap; events of one time come in the order in which they were added ---- */

enum event_kind {
    EVENT_COMPUTED,   /* a worker's computing instruction ends, if nothing changes until then */
    EVENT_RESUME,     /* a worker's computation looks again whether it may go on */
    EVENT_START_COMM, /* a worker's communication looks what it may start */
    EVENT_FLOW_BEGIN, /* a transfer's flow begins, after the latency */
    EVENT_FLOW_END,   /* a flow ends, or its sender may go on, if nothing changes until then */
    EVENT_FED,        /* a worker's samples of the next step are made, if it computes until then */
};

struct clock_event {
    double t_s;
    int64_t number;
    enum event_kind kind;
    int target;  /* a worker, a transfer, or a flow */
    int version; /* of its plans; an event of another version is stale */
};

/* The end of a flow moves every time that another flow begins or ends: each flow has a place of its
 * own for it, and the places are searched in blocks of which something has changed. */
enum { DUE_BLOCK = 32 };

struct due {
    double t_s;     /* INFINITY: nothing is due */
    int64_t number; /* of the event */
};

struct due_table {
    int n, capacity; /* places */
    struct due *due;
    int *first;    /* by block: the place that is due first */
    bool *changed; /* by block: `first` may be wrong */
    bool any_changed;
    int earliest; /* of all; -1: there are none */
};

struct clock_events {
    struct clock_event *heap;
    int n, capacity;
    int64_t next_number;
    struct due_table ends; /* of flows */
};

enum status events_add(struct clock_events *e, double t_s, enum event_kind kind, int target,
                       int version) MUST_USE;
/* Places 0 to n - 1 are there, and nothing is due at new ones. */
enum status events_make_places(struct clock_events *e, int n) MUST_USE;
/* The end of flow `target` is then, and at no other time; INFINITY: it has none. */
void events_set_end(struct clock_events *e, int target, double t_s);
/* The time of the next event; INFINITY: there is none. */
double events_next_s(struct clock_events *e);
bool events_take(struct clock_events *e, struct clock_event *out);
void events_deinit(struct clock_events *e);

/* ---- flows.c ---- */

/* `amount` of a resource from a flow's begin to its end: seconds of a core, bytes of a link. */
struct demand {
    int resource;
    double amount;
};

/* What a transfer takes when all members have arrived. */
struct load {
    double least_s;   /* it takes at least so long */
    double sent_left; /* the part still to come when the sender of a message may go on: its buffers
                         hold it; 1 is all */
    /* Where members share the work (shared_work.c): what taking part costs each of them, what the
     * rest takes one member alone, and which share of it one poll does; 0: they do not. */
    double each_s, work_s, visit;
    int n_demands, capacity;
    struct demand *demands;
};

/* The load of a transfer while it runs. */
struct flow {
    double rate;  /* of `left` per second */
    double offer; /* the rate that it could have, while rates are found */
    double limit; /* the rate that it can have at most */
    double even;  /* the amount of all demands, if they are equal; else 0 */
    int n_demands;
    int mark;   /* of the area that it was last part of */
    int evened; /* behind the first mark of the moment in which it last got an even share */
    const struct demand *demands;
    double work_s, visit; /* of its load */
    double soonest_s;     /* of shared work: when it can end */
    bool works;           /* some demand is a core's, and takes its time from what it computes */
    bool sent;            /* its sender has gone on */
    double left, since;   /* 1 at its begin, 0 at its end; as it was then */
    double sent_left;
    int transfer; /* of a free flow: the next free one */
};

struct resource {
    double capacity;
    double burst, saved, idle_since; /* of a link: the bytes that it lets through at once at most,
                                        those saved up at idle_since, when the last flow ended */
    int n_flows, flow_capacity;
    int *flows;       /* their numbers */
    double even_rate; /* capacity / n_flows */
    bool changed;     /* a flow began or ended, and rates were not settled since */
    int mark;         /* of the area that it was last part of */
    int filled;       /* the last such area whose rates were settled */
    int crowded;      /* the last such area that was too large */
    /* While rates are found: what settled flows leave, the number of flows that are not settled, an
     * even share for each, what they would take, and whether that is all. */
    double left, share, wanted;
    int n_open;
    bool full;
};

/* Flows and resources that are connected; those of one change at a time. */
struct flow_area {
    int n_changed, *changed; /* resources, before anything is settled */
    int mark;                /* of the last one */
    int n_resources, *resources;
    int n_flows, *flows;
    int n_open; /* of the flows, which come first, that are not settled */
};

/* ---- transfers.c ---- */

/* When it has ended, another operation uses it again. */
struct transfer {
    int next; /* in its bucket of the table, which it leaves when all have arrived; or -1. Of a free
                 one: the next free one */
    int64_t tag;
    bool reduces;
    int n_members, n_posted, member_capacity;
    int first, last; /* worker numbers of the first and last member; with the tag, its name */
    const struct comm_reduction *reduction;
    int64_t n_bytes;       /* of a message */
    int *workers, *instrs; /* [n_members], in the order of arrival: worker and instruction */
    double latency_s;
    struct load load;
    /* A message that flows as soon as its sender has arrived: */
    bool streams, arrived;
    bool told;        /* its sender went on at once */
    int next_in_line; /* -1: the last */
};

/* ---- workers.c ---- */

/* A program's two streams; shared by twins. */
struct streams {
    const struct program *program;
    int n_compute, n_comm;
    int *compute, *comm; /* instruction numbers */
    bool *wakes_comm;    /* [n_instrs] */
};

struct worker {
    const struct program *program;
    const struct instr_cost *costs;
    const struct streams *streams;
    int device, node, host;
    int next_on_host; /* the next worker of its host; -1: none */
    bool on_cpu;
    bool cold;          /* it waited before what it computes: its caches are cold */
    int compute_at;     /* position in streams->compute of the instruction that runs, or waits to */
    int comm_at;        /* position in streams->comm of the first that has not started */
    int computed;       /* number of the last instruction computed; -1: none */
    bool *done;         /* [n_comm], by position */
    int *comm_position; /* [n_instrs], shared by twins */
    bool computing, resuming, starting;
    bool starts_later;  /* starts communication when the instruction that runs has ended */
    bool busy;          /* it computes, or is about to */
    bool helps;         /* it waits, and does shared work meanwhile */
    double cost_s;      /* of the running instruction, beside the neighbours that are busy now */
    double left_s;      /* of it, at full speed */
    double signalled_s; /* the part of its waking time that the signal took */
    double owed_s; /* time spent on shared work between instructions, to be added to the next */
    double rate, since;
    int version;
    double reached_s; /* when the instruction at compute_at was reached */
    int under_way;
    double under_way_since;
    double comm_usage; /* share of its core that transfers and sums take now */
    double usage;      /* the same, with what waiting for them takes */
    int far_under_way; /* operations under way with members on other nodes */
    double began_s;    /* when the running instruction began */
    int cores;         /* of its device */
    /* On a crowded host, by position in streams->compute: the time of the stretch between two waits
     * for others that the instruction is in. */
    double *stretch_s;
    double feed_left_s, feed_since; /* making the next step's samples: one thread's time */
    int feed_version;
};

/* Workers that share cores: those of a node, or of several nodes (machine_node.host). */
struct host {
    int cores;            /* 0: unknown */
    int first_worker;     /* -1: none */
    int population, busy; /* workers; those that compute or are about to */
    int helping;          /* those that wait and do shared work */
    bool load_changed;    /* since costs were settled */
    double contention;    /* what instructions take with all workers busy, over alone */
    /* No worker is bound to cores of its own, because each has a node to itself, or because there
     * are too few: computing and communicating go wherever a core is free. */
    bool pooled;
    bool crowded;      /* its workers want more cores than there are: they take turns */
    double busy_cores; /* those of all that are busy */
    double comm_usage; /* cores that all transfers and sums take now */
};

struct clock_run {
    const struct clock_options *options;
    const struct machine *machine;
    arena *memory, *scratch;
    double now_s;
    bool attends; /* workers communicate between their instructions, without a thread for it */
    int n_workers;
    struct worker *workers;
    struct host *hosts;                  /* by the host's first node */
    int n_changed_hosts, *changed_hosts; /* whose load has changed */
    int n_resources;                     /* n_workers cores, then the machine's links */
    struct resource *resources;
    int n_transfers, transfer_capacity, free_transfer; /* -1: none is free */
    struct transfer *transfers;
    int n_flows, flow_capacity, free_flow; /* likewise */
    struct flow *flows;
    int n_buckets, *buckets;
    int *lines; /* [n_buckets]: queues of streamed messages, the first of each; -1: none */
    struct flow_area area;
    int *devices;     /* [n_workers], of the members of the call that is looked at */
    struct cost cost; /* of it */
    struct clock_events events;
    struct clock_result *result;
};

enum status transfer_init(struct clock_run *c) MUST_USE;
/* Worker w starts its communicating instruction. */
enum status transfer_post(struct clock_run *c, int w, int instr) MUST_USE;
/* The latency of transfer `number` has passed. */
enum status transfer_begin(struct clock_run *c, int number) MUST_USE;
/* The flow has ended, or its sender may go on. */
enum status transfer_flowed(struct clock_run *c, int flow) MUST_USE;

enum status demands_init(struct clock_run *c) MUST_USE;
/* Finds what a transfer takes whose members have all arrived: latency, least time, demands. */
enum status demands_find(struct clock_run *c, struct transfer *m) MUST_USE;

enum status flows_init(struct clock_run *c) MUST_USE;
/* The flow of transfer `number`. Rates do not change before flows_settle. */
enum status flow_begin(struct clock_run *c, int number) MUST_USE;
enum status flow_end(struct clock_run *c, int flow) MUST_USE;
/* Brings `left` up to date, and goes on at this rate. */
enum status flow_set_rate(struct clock_run *c, int flow, double rate) MUST_USE;
/* This share of it is done at once. */
void flow_skip(struct clock_run *c, int flow, double share);
/* A flow on the resource begins, ends, or has other conditions: rates are to be settled. */
void flows_note_change(struct clock_run *c, int resource);
/* The flow has come to sent_left: its sender goes on. */
void flow_pass(struct clock_run *c, int flow);
/* To be called before time goes on: finds the rates that changed. */
enum status flows_settle(struct clock_run *c) MUST_USE;

/* ---- shared_work.c ---- */

/* Finds the rates of all flows that the worker whose core this is takes part in. */
enum status shared_work_settle(struct clock_run *c, const struct resource *core) MUST_USE;
/* A flow has begun. */
void shared_work_begin(struct clock_run *c, int flow);
/* Between two instructions the worker does its part of every flow that it takes part in. */
void shared_work_poll(struct clock_run *c, int worker);
/* The worker begins or ends to compute. */
void shared_work_note_computing(struct clock_run *c, int worker);
/* The worker begins or ends to compute, or a flow of it begins or ends: it may help now, or not. */
void shared_work_note_helping(struct clock_run *c, int worker);

/* ---- workers.c ---- */

bool worker_waits_for_others(const struct worker *w, const struct instr *instr);
/* All workers are prepared before the first one begins. */
enum status worker_prepare(struct clock_run *c, int number) MUST_USE;
enum status worker_begin(struct clock_run *c, int number) MUST_USE;
/* The share of worker w's neighbours that compute or help now. */
double worker_find_load(const struct clock_run *c, const struct worker *w);
/* The speed of computing workers on a pooled host, over that with a core each. */
double worker_pool_speed(const struct host *h);
/* Worker w begins or ends to compute or help. */
void workers_note_load(struct clock_run *c, const struct worker *w);
/* To be called before time goes on: finds the costs of instructions running on such hosts. */
enum status workers_settle(struct clock_run *c) MUST_USE;
/* The worker waits, and must be woken. */
bool worker_sleeps(const struct clock_run *c, const struct worker *w);
enum status worker_computed(struct clock_run *c, int number) MUST_USE;
enum status worker_resume(struct clock_run *c, int number) MUST_USE;
enum status worker_start_comm(struct clock_run *c, int number) MUST_USE;
/* The communicating instruction number `instr` has ended. */
enum status worker_communicated(struct clock_run *c, int number, int instr) MUST_USE;
enum status worker_fed(struct clock_run *c, int number) MUST_USE;
/* How long the next step's samples still take when all else has ended. */
double worker_feed_rest(struct clock_run *c, int number);
/* Whether instruction `instr` has ended. */
bool worker_has_ended(const struct worker *w, int instr);
/* The share of its core that transfers take has changed. */
enum status worker_change_usage(struct clock_run *c, int number, double usage) MUST_USE;

#endif
