/* parts.h: what the files of the clock share. Not for use outside this room.
 *
 *     clock.c      sets up, sums up
 *     workers.c    the two streams of a worker, as the executor runs them
 *     meetings.c   transfers and reductions: who has come, and what they demand when all have
 *     demands.c    what a transfer or a reduction takes of cores and links
 *     flows.c      what is under way, sharing cores and links
 *     hands.c      what members do together, each while it waits and between its instructions
 *     events.c     what happens next
 */
#ifndef CLEAVE_CLOCK_PARTS_H
#define CLEAVE_CLOCK_PARTS_H

#include "clock/clock.h"

/* ---- events.c: a heap; events of the same time come in the order in which they were added ---- */

enum event_kind {
    EVENT_COMPUTED,   /* a worker's computing instruction ends, if nothing changes until then */
    EVENT_RESUME,     /* a worker's computation looks again whether it may go on */
    EVENT_START_COMM, /* a worker's communication looks what it may start */
    EVENT_FLOW_BEGIN, /* a meeting's flow begins, after the latency */
    EVENT_FLOW_END,   /* a flow ends, or its sender may go on, if nothing changes until then */
    EVENT_FED,        /* a worker's samples of the next step are made, if it computes until then */
};

struct clock_event {
    double t_s;
    int64_t number;
    enum event_kind kind;
    int who;     /* a worker, a meeting, or a flow */
    int version; /* of who's plans; an event of another version is forgotten */
};

/* Flows' ends are put off again and again, every time that one comes or goes: they have a place
 * each in which to write when, and are looked through in blocks of which something has changed. */
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

enum status events_add(struct clock_events *e, double t_s, enum event_kind kind, int who,
                       int version) MUST_USE;
/* Places 0 to n - 1 are there, and nothing is due at new ones. */
enum status events_make_places(struct clock_events *e, int n) MUST_USE;
/* The end of flow `who` is then, and at no other time; INFINITY: it has none. */
void events_set_end(struct clock_events *e, int who, double t_s);
/* When the next event is; INFINITY: there is none. */
double events_next_s(struct clock_events *e);
bool events_take(struct clock_events *e, struct clock_event *out);
void events_deinit(struct clock_events *e);

/* ---- flows.c ---- */

/* `amount` of a resource from a flow's begin to its end: seconds of a core, bytes of a link. */
struct demand {
    int resource;
    double amount;
};

/* What a meeting takes when all have come. */
struct load {
    double least_s;   /* it takes at least so long */
    double sent_left; /* what is still to come when the sender of a message may go on: its buffers
                         hold it; 1 is all */
    /* Where members do it together (see hands.c): what taking part takes each of them, what there
     * is to do beside that, if one does it alone, and which share of it one does that looks in
     * between two instructions; 0: they do not. */
    double each_s, work_s, visit;
    int n_demands, capacity;
    struct demand *demands;
};

/* A meeting's load on its way. */
struct flow {
    double rate;  /* of `left` per second */
    double offer; /* the rate it could have, while rates are looked for */
    double limit; /* the rate that it can have at most */
    double even;  /* the amount of all demands, if they are alike; else 0 */
    int n_demands;
    int mark;   /* of the area that it was last part of */
    int evened; /* behind the first mark of the moment in which it was last given an even share */
    const struct demand *demands;
    double work_s, visit; /* of its load */
    double soonest_s;     /* of what members do together: when it can end */
    bool works;           /* some demand is a core's, and takes its time from what it computes */
    bool sent;            /* its sender went on */
    double left, since;   /* 1 at its begin, 0 at its end; as it was then */
    double sent_left;
    int meeting; /* in a free one, the next that is free */
};

struct resource {
    double capacity;
    double burst, saved, idle_since; /* of a link: what it lets through at once at most, what of it
                                        was saved up until then, and since when nothing passes */
    int n_flows, flow_capacity;
    int *flows;       /* their numbers */
    double even_rate; /* capacity / n_flows */
    bool changed;     /* a flow came or went, and rates were not settled since */
    int mark;         /* of the area that it was last part of */
    int filled;       /* the last such area whose rates were settled */
    int crowded;      /* the last such area that was too large */
    /* While rates are looked for: what settled flows leave, flows that are not settled, an even
     * share for each, what they would take of it, and whether that is all. */
    double left, share, wanted;
    int n_open;
    bool full;
};

/* Flows and resources that are joined; those of one change at a time. */
struct flow_area {
    int n_changed, *changed; /* resources, before anything is settled */
    int mark;                /* of the last one */
    int n_resources, *resources;
    int n_flows, *flows;
    int n_open; /* of the flows, which come first, that are not settled */
};

/* ---- meetings.c ---- */

/* One that has ended is used again. */
struct meeting {
    int next; /* in its bucket of the table, which it leaves when all have come; or -1. Of one that
                 is free: the next that is */
    int64_t tag;
    bool reduces;
    int n_members, n_posted, member_capacity;
    int first, last; /* the first and last member's worker number: with the tag, its name */
    const struct comm_reduction *reduction;
    int64_t n_bytes;       /* of a message */
    int *workers, *instrs; /* [n_members]: who came, and with which instruction */
    double latency_s;
    struct load load;
    /* A message that flows as soon as its sender has come (see meetings.c): */
    bool streams, arrived;
    bool told;        /* its sender went on when it came */
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
    bool cold;          /* it slept before what it computes: its caches are cold */
    int compute_at;     /* position in streams->compute of what runs, or waits to */
    int comm_at;        /* position in streams->comm of the first that was not started */
    int computed;       /* number of the last instruction computed; -1: none */
    bool *done;         /* [n_comm], by position */
    int *comm_position; /* [n_instrs], shared by twins */
    bool computing, resuming, starting;
    bool starts_later; /* looks what it may start when the instruction that runs has ended */
    bool busy;         /* it computes, or is about to */
    bool lends;        /* it waits, and has a hand in what is under way */
    double cost_s;     /* of what runs, beside those that are busy now */
    double left_s;     /* of it, at full speed */
    double rung_s;     /* of what waking it takes, what has passed: ringing for it */
    double owed_s;     /* what it did for others between instructions, and has to catch up on */
    double rate, since;
    int version;
    double reached_s; /* when the instruction at compute_at was reached */
    int under_way;
    double under_way_since;
    double comm_usage; /* share of its core that transfers and sums take now */
    double usage;      /* the same, with what waiting for them takes */
    int far_under_way; /* of what is under way, what members of other nodes are in */
    double began_s;    /* when what runs began */
    int cores;         /* of its device */
    /* Where it takes turns with others, by position in streams->compute: what all take that it
     * computes from the wait for others before to the next one. */
    double *stretch_s;
    double feed_left_s, feed_since; /* making the next step's samples: one thread's time */
    int feed_version;
};

/* What shares cores: a node, or several of them (machine_node.host). */
struct host {
    int cores;            /* 0: unknown */
    int first_worker;     /* -1: none */
    int population, busy; /* workers; of them, that compute or are about to */
    int lending;          /* and that have a hand in what is under way instead */
    bool load_changed;    /* since costs were settled */
    double contention;    /* what instructions take with all busy, of what they take alone */
    /* No worker is bound to cores of its own, since each has a node to itself, or since there are
     * too few: computing and communicating go wherever a core is free. */
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
    bool attends; /* workers communicate between their instructions, and have no thread for it */
    int n_workers;
    struct worker *workers;
    struct host *hosts;                  /* by the host's first node */
    int n_changed_hosts, *changed_hosts; /* whose load has changed */
    int n_resources;                     /* n_workers cores, then the machine's links */
    struct resource *resources;
    int n_meetings, meeting_capacity, free_meeting; /* -1: none is free */
    struct meeting *meetings;
    int n_flows, flow_capacity, free_flow; /* likewise */
    struct flow *flows;
    int n_buckets, *buckets;
    int *lines; /* [n_buckets]: the first meeting in line; -1: none */
    struct flow_area area;
    double *amounts; /* [n_resources], see demands.c */
    int *touched;
    struct clock_events events;
    struct clock_result *result;
};

enum status meetings_init(struct clock_run *c) MUST_USE;
/* Worker w has come to its communicating instruction. */
enum status meetings_post(struct clock_run *c, int w, int instr) MUST_USE;
/* Of meeting `number`. */
enum status meetings_begin(struct clock_run *c, int number) MUST_USE;
/* Of the flow. */
enum status meetings_flowed(struct clock_run *c, int flow) MUST_USE;

/* What a meeting whose members have all come takes: latency, least time, demands. */
enum status demands_find(struct clock_run *c, struct meeting *m) MUST_USE;

enum status flows_init(struct clock_run *c) MUST_USE;
/* That of meeting `number`. Rates are those of before until flows_settle. */
enum status flow_begin(struct clock_run *c, int number) MUST_USE;
enum status flow_end(struct clock_run *c, int flow) MUST_USE;
/* Brings `left` up to now, and goes on like this. */
enum status flow_set_rate(struct clock_run *c, int flow, double rate) MUST_USE;
/* So much of it is done, all at once. */
void flow_skip(struct clock_run *c, int flow, double share);
/* A flow on it comes, goes, or finds other conditions: to be settled. */
void flows_note_change(struct clock_run *c, int resource);
/* It has come to sent_left, and goes on. */
void flow_pass(struct clock_run *c, int flow);
/* To be called before time goes on: rates of all that what came and went has changed. */
enum status flows_settle(struct clock_run *c) MUST_USE;

/* ---- hands.c ---- */

/* Rates of all that the worker whose core this is has a hand in. */
enum status hands_settle(struct clock_run *c, const struct resource *core) MUST_USE;
/* A flow has begun. */
void hands_begin(struct clock_run *c, int flow);
/* Between two instructions it does its part of everything that is under way for it, and owes the
 * time. */
void hands_visit(struct clock_run *c, int worker);
/* It begins or ends to compute. */
void hands_turn(struct clock_run *c, int worker);
/* The same, or something is under way for it that was not, or no more. */
void hands_change(struct clock_run *c, int worker);

/* ---- workers.c ---- */

bool worker_waits_for_others(const struct worker *w, const struct instr *instr);
/* Of worker `number`. All are prepared, in their order, before the first one begins. */
enum status worker_prepare(struct clock_run *c, int number) MUST_USE;
enum status worker_begin(struct clock_run *c, int number) MUST_USE;
/* Of those that can compute beside worker w, the share that does, or has a hand in something. */
double worker_find_load(const struct clock_run *c, const struct worker *w);
/* Of those that compute where cores are anybody's, against having one each. */
double worker_pool_speed(const struct host *h);
/* Worker w begins or ends to do so. */
void workers_note_load(struct clock_run *c, const struct worker *w);
/* To be called before time goes on: costs of all that run where that was. */
enum status workers_settle(struct clock_run *c) MUST_USE;
/* It waits, and has to be rung for. */
bool worker_sleeps(const struct clock_run *c, const struct worker *w);
enum status worker_computed(struct clock_run *c, int number) MUST_USE;
enum status worker_resume(struct clock_run *c, int number) MUST_USE;
enum status worker_start_comm(struct clock_run *c, int number) MUST_USE;
/* The communicating instruction number `instr` has ended. */
enum status worker_communicated(struct clock_run *c, int number, int instr) MUST_USE;
enum status worker_fed(struct clock_run *c, int number) MUST_USE;
/* How long the samples of the next step still take when all else has ended. */
double worker_feed_rest(struct clock_run *c, int number);
/* Whether instruction `instr` has ended. */
bool worker_has_ended(const struct worker *w, int instr);
/* What transfers take of its core has changed. */
enum status worker_change_usage(struct clock_run *c, int number, double usage) MUST_USE;

#endif
