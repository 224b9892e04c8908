/* Measures the links between nodes: latency and bandwidth of every pair, in rounds of a tournament,
 * so that no node is in two pairs at a time.
 *
 * Hosts have no common clock: the sender of a pair takes the time from its message to the tiny
 * answer, and half of a tiny message's round trip is the latency. Messages grow, and the slope
 * between the last two gives the bandwidth, so that the initial burst of a switch or shaper does
 * not count. Of several messages the fastest counts, because other traffic may delay one. The time
 * that a message saves after a rest gives the burst. */
#include "machine/survey.h"

#include "base/numbers.h"
#include "base/timer.h"

#include <math.h>
#include <time.h>

enum { LINK_TAG = 3, ANSWER_TAG = 4, PINGS = 21, MOST_ROUNDS = 32, PULLS = 3, RESTED = 5 };
static const int64_t first_bytes = 1 << 14;
static const double long_enough_s = 0.2;
/* A message after a rest would take so long without a burst; a burst below this share of it is
 * noise. */
static const double rested_s = 0.02, least_burst = 0.05;
static const int64_t rest_ns = 40000000;

/* The sender sends this before each message. */
struct order {
    int64_t bytes; /* negative: no further message */
};

static enum status send(struct survey *s, int peer, int64_t tag, const void *data, int64_t n_bytes)
{
    comm_op op;
    TRY(s->end->table->start_send(s->end, peer, tag, data, n_bytes, &op));
    return survey_finish(s->end, &op);
}

static enum status receive(struct survey *s, int peer, int64_t tag, void *data, int64_t n_bytes)
{
    comm_op op;
    TRY(s->end->table->start_receive(s->end, peer, tag, data, n_bytes, &op));
    return survey_finish(s->end, &op);
}

/* ---- the two sides ---- */

static enum status answer_all(struct survey *s, int peer)
{
    for (;;) {
        struct order order = {0};
        TRY(receive(s, peer, LINK_TAG, &order, sizeof order));
        if (order.bytes < 0)
            return STATUS_OK;
        if (order.bytes > s->data_bytes)
            return status_fail(STATUS_FAILED, "measuring: a message of %lld bytes was announced",
                               (long long)order.bytes);
        TRY(receive(s, peer, LINK_TAG, s->data, order.bytes));
        TRY(send(s, peer, ANSWER_TAG, &order, sizeof order));
    }
}

/* From the message's begin to its answer's arrival. */
static enum status time_message(struct survey *s, int peer, int64_t n_bytes, double *seconds)
{
    struct order order = {n_bytes};
    TRY(send(s, peer, LINK_TAG, &order, sizeof order));
    int64_t begin_ns = timer_now_ns();
    TRY(send(s, peer, LINK_TAG, s->data, n_bytes));
    TRY(receive(s, peer, ANSWER_TAG, &order, sizeof order));
    *seconds = (double)(timer_now_ns() - begin_ns) / 1e9;
    return STATUS_OK;
}

static enum status time_median(struct survey *s, int peer, int64_t n_bytes, double *seconds)
{
    double times[PINGS];
    for (int i = 0; i < PINGS; i++)
        TRY(time_message(s, peer, n_bytes, &times[i]));
    *seconds = numbers_median(times, PINGS);
    return STATUS_OK;
}

static enum status time_least(struct survey *s, int peer, int64_t n_bytes, double *seconds)
{
    *seconds = INFINITY;
    for (int i = 0; i < PULLS; i++) {
        double own = 0;
        TRY(time_message(s, peer, n_bytes, &own));
        *seconds = fmin(*seconds, own);
    }
    return STATUS_OK;
}

static void rest(void)
{
    struct timespec time = {.tv_nsec = rest_ns};
    (void)nanosleep(&time, NULL);
}

/* The bytes that pass at once after a rest; `there_and_back` is a tiny message's round trip. */
static enum status find_burst(struct survey *s, int peer, double there_and_back,
                              struct survey_link *out)
{
    double times[RESTED], bytes = out->bytes_per_s * rested_s;
    bytes = fmin(bytes, (double)s->data_bytes);
    for (int i = 0; i < RESTED; i++) {
        rest();
        TRY(time_message(s, peer, (int64_t)bytes, &times[i]));
    }
    double took_s = numbers_median(times, RESTED) - there_and_back;
    double burst = bytes - out->bytes_per_s * took_s;
    out->burst_bytes = burst > least_burst * bytes ? burst : 0;
    return STATUS_OK;
}

static enum status measure_link(struct survey *s, int peer, struct survey_link *out)
{
    double there_and_back = 0, before = 0, seconds = 0;
    int64_t bytes = first_bytes, before_bytes = 0;
    struct order stop = {-1};
    TRY(time_median(s, peer, 1, &there_and_back));
    out->latency_s = there_and_back / 2;
    before = there_and_back;
    for (;; bytes *= 4) {
        bytes = int64_min(bytes, s->data_bytes);
        TRY(time_least(s, peer, bytes, &seconds));
        if (seconds > long_enough_s || bytes == s->data_bytes)
            break;
        before = seconds;
        before_bytes = bytes;
    }
    out->bytes_per_s = seconds > 1.2 * before ? (double)(bytes - before_bytes) / (seconds - before)
                                              : (double)bytes / seconds;
    TRY(find_burst(s, peer, there_and_back, out));
    return send(s, peer, LINK_TAG, &stop, sizeof stop);
}

/* ---- the tournament ---- */

/* The opponent of node `a` in a round of a round-robin tournament; n is even. The last node stays,
 * the others rotate. A node whose opponent does not exist, or is itself, rests. */
static int opponent(int a, int round, int n)
{
    int last = n - 1;
    if (a == last)
        return round % last * (n / 2) % last; /* x with 2 x == round modulo last */
    int b = (round - a % last + 2 * last) % last;
    return b == a ? last : b;
}

/* The link that a worker has measured; all workers exchange it. from < 0: none. */
struct report {
    int from, to;
    struct survey_link link;
};

static enum status measure_direction(struct survey *s, int round, bool up)
{
    int n = s->n_nodes + s->n_nodes % 2;
    int me = s->end->rank, node = s->node_of[me];
    struct report mine = {.from = -1}, *all;
    if (me == survey_first_worker(s, node)) {
        int other = opponent(node, round, n);
        if (other < s->n_nodes && other != node) {
            int peer = survey_first_worker(s, other);
            if ((node < other) == up) {
                mine.from = node;
                mine.to = other;
                TRY(measure_link(s, peer, &mine.link));
            } else {
                TRY(answer_all(s, peer));
            }
        }
    }
    TRY(arena_alloc_array(s->memory, (size_t)s->end->size, sizeof *all, &all));
    TRY(s->end->table->exchange(s->end, &mine, sizeof mine, all));
    for (int i = 0; i < s->end->size; i++)
        if (all[i].from >= 0)
            s->links[all[i].from * s->n_nodes + all[i].to] = all[i].link;
    return STATUS_OK;
}

enum status survey_measure_links(struct survey *s)
{
    size_t n = (size_t)s->n_nodes;
    int rounds = s->n_nodes + s->n_nodes % 2 - 1;
    TRY(arena_alloc_array(s->memory, n * n, sizeof *s->links, &s->links));
    for (int i = 0; i < rounds && i < MOST_ROUNDS; i++) {
        TRY(measure_direction(s, i, true));
        TRY(measure_direction(s, i, false));
    }
    return STATUS_OK;
}
