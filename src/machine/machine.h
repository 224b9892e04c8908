/* machine.h: the devices a plan runs on and the links between them: discovered, from a file, or
 * from a string.
 *
 * A device is what one worker runs on: a GPU, or some cores of a host. Devices stand on nodes. A
 * link carries bytes with a latency and a bandwidth, which concurrent messages share; the route
 * from one device to another is a short list of links. Devices and links may all differ.
 *
 *     node 0                      node 1
 *     [dev 0]--port--+      +--port--[dev 2]
 *                    |-nic==nic-|
 *     [dev 1]--port--+      +--port--[dev 3]
 *
 *     dev 0 -> dev 1: out port of 0, in port of 1; or the link of the pair, where they have one
 *     dev 0 -> dev 2: out port of 0, out nic of node 0, in nic of node 1, in port of 2
 *
 * If workers are cores of one host, transfers and sums are memory traffic of those cores: their
 * times are measured, as curves (struct machine_curve).
 *
 *     struct machine *m;
 *     TRY(machine_parse("4x4:p100,intra=15GB/s,inter=4.5GB/s", &m));  // string, file or "local"
 *     int hops[MACHINE_MAX_HOPS];
 *     int n = machine_route(m, 0, 5, hops);
 *     machine_destroy(m);
 *
 * A machine is built once in an arena and then constant; measuring (measure.h) changes it before it
 * is shared. docs/machines.md has the file format.
 */
#ifndef CLEAVE_MACHINE_MACHINE_H
#define CLEAVE_MACHINE_MACHINE_H

#include "base/arena.h"
#include "base/precision.h"
#include "base/status.h"
#include "comm/comm.h"

#include <stdint.h>
#include <stdio.h>

enum { MACHINE_MAX_HOPS = 4, MACHINE_MAX_DEVICES = 4096 };

#define MACHINE_SHORT_SLEEP_S 0.2e-3

enum machine_device_class { MACHINE_CPU, MACHINE_GPU };

/* Operations per second in one arithmetic. */
struct machine_rate {
    double peak, reached;
};

/* A kind of device. `peak` figures are the maker's; good kernels get the `reached` ones, which make
 * the roofline. */
struct machine_kind {
    const char *name;  /* "p100"; a name of machines/devices.json, or "cpu" */
    const char *about; /* "NVIDIA Tesla P100 SXM2, 16 GB" */
    enum machine_device_class class;
    struct machine_rate rates[ARITHMETIC_COUNT];  /* by enum arithmetic; zeros: machine_kind_rate */
    double peak_bytes_per_s, reached_bytes_per_s; /* of its memory */
    int64_t memory_bytes;    /* 0 on MACHINE_CPU: it is the node's (machine_device_memory) */
    double launch_s;         /* fixed part of every instruction: a kernel launch, a call */
    int cores;               /* MACHINE_CPU: of one device; else 0 */
    double link_bytes_per_s; /* default bandwidth of its port, each way */
    double link_latency_s;   /* of a message to a neighbour: half in the out, half in the in port */
    /* Of the nodes that it is sold in: every so many devices share a network adapter, which is so
     * fast each way. 0: one adapter of 100 Gbit/s for the node. */
    double adapter_bytes_per_s;
    int adapter_devices;
    const char *sold; /* the node: "DGX H100: NVSwitch, ...", or "" */
    const char *note; /* source of the figures, or ""  */
};

struct machine_device {
    int kind; /* into kinds */
    int node;
};

struct machine_node {
    const char *name;
    const char *about;           /* "1 package, 8 cores, 2 NUMA nodes, L3 32 MiB", or "" */
    int n_devices, first_device; /* devices of a node are neighbours in the list */
    int64_t memory_bytes;        /* of the host, shared by its CPU devices; 0: unknown */
    int cores;                   /* processing units of the host; 0: unknown */
    /* Nodes with the same text here (containers, namespaces) are on one host and share its cores;
     * "": the node has its own. */
    const char *host;
    int own_cores; /* of its cores, those that no other node of the host uses: none or all */
};

struct machine_link {
    const char *name;   /* "node0.out", "dev3.in" */
    double bytes_per_s; /* shared by all transfers on it */
    double latency_s;   /* added once per message that passes */
    /* A traffic shaper (a cloud's, or tc) passes so many bytes at once after a rest, and refills at
     * bytes_per_s; 0: no shaper. */
    double burst_bytes;
};

/* Two devices of a node with a link of their own (a bridge), which messages take instead of the
 * ports. */
struct machine_pair {
    int from, to, link;
};

/* The time of an operation between workers, measured at several sizes, ascending, on an idle host
 * with every member awake. In between, machine_curve_at interpolates on logarithms; below the first
 * point the time is constant, and beyond the last one the bandwidth is. */
struct machine_point {
    double bytes;   /* of the message, or of the array that is summed */
    double seconds; /* from the last worker's start to the last one's end */
    /* The part in which each member's cores are busy and cannot compute. Of a message that both
     * ends copy (comm_table.shared_work): the fixed cost of taking part, and half of the time in
     * which one end alone would do the rest. */
    double cpu_s;
    /* Of a message over a network: the time after which its sender continues, because the system
     * has buffered the rest; 0: it continues when the message has arrived. */
    double sent_s;
};
struct machine_curve {
    const char *transport;   /* "threads", "mpi" */
    bool reduces;            /* a sum over members; else a message from one to another */
    enum comm_method method; /* of a sum; COMM_GATHER for a message */
    int members;             /* 2 for a message */
    int nodes;               /* on which the members were: 1, they share a host's memory */
    int n_points;
    const struct machine_point *points;
};

struct machine {
    arena *memory;
    const char *name;   /* the string, the file's name, or "local" */
    const char *source; /* one line on where it comes from */
    /* Which links are defaults of their kind, and what these are; "": all were given. */
    const char *links_note;
    int n_kinds;
    struct machine_kind *kinds;
    int n_nodes;
    struct machine_node *nodes;
    int n_devices;
    struct machine_device *devices;
    int n_links;
    struct machine_link *links;
    /* The links of each device to (in) and from (out) the other devices of its node, and of each
     * node to and from the other nodes; -1: no such link. */
    int *device_out, *device_in; /* [n_devices] */
    int *node_out, *node_in;     /* [n_nodes] */
    int n_pairs;
    struct machine_pair *pairs; /* sorted by from, then to */
    int n_curves;
    struct machine_curve *curves;
    /* CPU hosts: wake_s from signalling a worker that slept for MACHINE_SHORT_SLEEP_S or less until
     * it runs, deep_wake_s if it slept at least ten times as long (longer rests put a core into
     * deeper sleep states); ring_s of the signalling worker's own time; step_s of a step beside its
     * instructions (starting and joining the workers). */
    double wake_s, deep_wake_s, ring_s, step_s;
    /* The share of a core that a worker spends while it has a message of another host in flight, if
     * only on polling. */
    double wait_share;
    double far_byte_s; /* core time of each byte from or to another host, in addition */
};

/* `text` is one of
 *     local                      this host: machine_discover(1)
 *     optcnn                     a name in machines/, compiled in (machine_names)
 *     my.json, host.xml          a file: machine JSON, or hwloc's XML
 *     {"cleave_machine": 1, ..   the text of a machine file
 *     synthetic:numa:2 core:8 pu:1                       hwloc's description of a host
 *     4x4:p100,intra=15GB/s,inter=4.5GB/s                nodes x devices of each : kind
 *
 * The last is made of groups of nodes and of options, with commas between them:
 *     GROUP    NODESxDEVICES:KIND[+KIND..]   one kind for all devices of a node, or one for each
 *     OPTION   intra=15GB/s            between devices of a node, each way  [the kind's]
 *              intra_latency=10us      of a message between them            [the kind's]
 *              inter=100Gbit/s         into and out of a node               [the kind's]
 *              latency=5us             of a message between nodes, in addition  [5us]
 *              memory=16GiB            of each device; of CPUs, of each node    [the kind's]
 * An option holds for the groups before it that were not given it yet:
 *     2x4:v100,intra=130GB/s,1x8:k80,inter=10GB/s   intra holds for the v100 alone, inter for both
 *     1x4:p100+p100+k40+k40                         mixed devices on one node
 *
 * Kinds are those of machines/devices.json (machine_kind_names); upper and lower case are the same.
 * Of a host with GPUs in an hwloc file the GPUs are the devices, else its cores are, one each.
 *
 * STATUS_USAGE says what is wrong, what is allowed, and the nearest match; STATUS_FAILED, of a
 * file, where: with line and column if it is no JSON, else with the member ("my.json:7:
 * nodes/0/devices/1: .."). */
enum status machine_parse(const char *text, struct machine **out) MUST_USE;
void machine_destroy(struct machine *m); /* NULL is fine */

/* Whether machine_parse would read a file of that name. */
bool machine_is_file(const char *text);

/* The text of a machine file, as machine_parse reads it from a file; `where` names it in errors.
 * NULL: it was typed, and errors are STATUS_USAGE. */
enum status machine_parse_json(const char *text, size_t n_bytes, const char *where,
                               struct machine **out) MUST_USE;

/* The machine after a loss: a copy less the nodes that `names` lists, by name or by number from 0,
 * with commas. Devices and links are numbered anew; the name lists the lost ones. STATUS_USAGE for
 * an unknown node, or if none is left. */
enum status machine_without(const struct machine *m, const char *names,
                            struct machine **out) MUST_USE;

/* The compiled-in names, of machines/ and of machines/devices.json; each list ends with NULL. */
enum status machine_names(arena *memory, const char *const **out) MUST_USE;
enum status machine_kind_names(arena *memory, const char *const **out) MUST_USE;

/* This host: one device per `threads` processing units (hardware threads) that this process may
 * use, and its GPUs behind them. A unit's peak is its share of its core, so that all devices
 * together have the host's. Without hwloc in the build: what Linux reports, no GPUs. It measures
 * nothing, so there are no curves. */
enum status machine_discover(int threads, struct machine **out) MUST_USE;

/* Complete JSON: machine_parse reads back a machine that is equal in every field. */
enum status machine_write(const struct machine *m, FILE *out) MUST_USE;
enum status machine_write_file(const struct machine *m, const char *path) MUST_USE;
/* The same as text, for free(). */
enum status machine_write_text(const struct machine *m, char **text) MUST_USE;

/* STATUS_FAILED names the part that breaks a rule: numbers in range, devices of a node together,
 * unique names, positive bandwidths, ascending curves. Every machine that these functions return
 * has passed. */
enum status machine_check(const struct machine *m) MUST_USE;

/* A kind's rate in one arithmetic; zeros if none is known. Cores of which nothing is said compute
 * in fp64 at half the rate of fp32, and in bf16, which they widen, at that of fp32. */
struct machine_rate machine_kind_rate(const struct machine_kind *k, enum arithmetic type);

/* STATUS_USAGE names the first kind whose devices have no rate for the products of this precision,
 * with the precisions for which it has one. */
enum status machine_check_rates(const struct machine *m, enum precision precision) MUST_USE;

/* The links from device a to device b, in order; 0 if a == b or nothing is in the way. */
int machine_route(const struct machine *m, int a, int b, int hops[MACHINE_MAX_HOPS]);

/* The first node of the host that a node is on: itself, unless several are on one host. */
int machine_find_host(const struct machine *m, int node);

/* The memory of a device: a GPU's own; for a CPU device an even share of the node's. 0: unknown. */
int64_t machine_device_memory(const struct machine *m, int device);

/* The nearest curve, of members on one node: same transport and operation, nearest number of
 * members (on a logarithm); a method of summing that was not measured takes the curve of another.
 * NULL: none was measured. */
const struct machine_curve *machine_find_curve(const struct machine *m, const char *transport,
                                               bool reduces, enum comm_method method, int members);
/* The same for members on `nodes` nodes or the nearest number above 1. */
const struct machine_curve *machine_find_network_curve(const struct machine *m,
                                                       const char *transport, bool reduces,
                                                       enum comm_method method, int members,
                                                       int nodes);
/* Interpolated (see struct machine_point). */
struct machine_point machine_curve_at(const struct machine_curve *c, double bytes);

/* Parses "15GB/s", "100Gbit/s", "40Gbps", "4.5 GiB/s" (b is a bit, B a byte): bytes per second;
 * false if it is no bandwidth above 0, or has no unit. */
bool machine_parse_bandwidth(const char *text, double *bytes_per_s);
/* "5us", "1.5 ms", "0"; "16GiB", "11 GB". False if it is none, or negative. */
bool machine_parse_seconds(const char *text, double *seconds);
bool machine_parse_bytes(const char *text, int64_t *n_bytes);

#endif
