#include "comm_cases.h"

#include <math.h>

bool cases_wait(comm *c, comm_op *ops, int n, struct cases_report *report)
{
    bool done[64] = {false};
    int64_t start_ns = timer_now_ns();
    for (int left = n; left > 0;) {
        for (int i = 0; i < n; i++) {
            if (done[i])
                continue;
            CASES_OK(report, c->table->poll(c, &ops[i], &done[i]));
            left -= done[i];
        }
        if (left > 0)
            CASES_OK(report, c->table->pause(c, 0.01));
        CASES_CHECK(report, timer_now_ns() - start_ns < 60000000000,
                    "worker %d: %d of %d operations are still under way", c->rank, left, n);
    }
    return true;
}

/* ---- numbers ---- */

/* A number that depends on worker, element and round; a whole one, or one that rounds. */
static double cases_number(int worker, int64_t i, int64_t round, bool whole)
{
    uint64_t h = ((uint64_t)worker * 1000003 + (uint64_t)i) * 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 29) ^ (uint64_t)round) * 0xbf58476d1ce4e5b9u;
    if (whole)
        return (double)(h >> 50) - 8192; /* sums of 16 of them are exact in float */
    return ((double)(h >> 20) / 17592186044416.0 - 0.5) * (double)(1 << (h & 15));
}

static void cases_set(void *data, enum element type, int64_t i, double value)
{
    if (type == ELEMENT_F64)
        ((double *)data)[i] = value;
    else
        ((float *)data)[i] = (float)value;
}

static double cases_add(enum element type, double a, double b)
{
    if (type == ELEMENT_F64)
        return a + b;
    float sum = (float)a + (float)b;
    return (double)sum;
}

static int64_t cases_type_bytes(enum element type)
{
    return type == ELEMENT_F64 ? 8 : 4;
}

/* The s with i in [s*count/n, (s+1)*count/n). */
static int cases_slice(int64_t i, int64_t count, int n)
{
    int s = n - 1;
    while (s * count / n > i)
        s--;
    return s;
}

/* Element i of the sum, added as comm.h says; x[position] are its terms. */
static double cases_serial_sum(const struct comm_reduction *r, const double *x, int64_t i)
{
    int n = r->n_members;
    double y[CASES_MAX_WORKERS];
    memcpy(y, x, (size_t)n * sizeof *y);
    double sum;
    switch (r->method) {
    case COMM_TREE:
        for (int d = 1; d < n; d *= 2) {
            for (int p = 0; p < n; p++) {
                if (p % (2 * d) == 0 && p + d < n)
                    y[p] = cases_add(r->type, y[p], y[p + d]);
            }
        }
        return y[0];
    case COMM_HIERARCHICAL: {
        int nodes = 0;
        for (int p = 0; p < n; p++) {
            if (p % r->node_size == 0)
                y[nodes++] = x[p];
            else
                y[nodes - 1] = cases_add(r->type, y[nodes - 1], x[p]);
        }
        n = nodes;
    }
        /* fall through */
    case COMM_RING: {
        int s = cases_slice(i, r->count, n);
        sum = y[(s + 1) % n];
        for (int k = 2; k <= n; k++)
            sum = cases_add(r->type, sum, y[(s + k) % n]);
        return sum;
    }
    default:
        sum = y[0];
        for (int p = 1; p < n; p++)
            sum = cases_add(r->type, sum, y[p]);
        return sum;
    }
}

/* ---- reductions ---- */

static void cases_fill(const comm *c, const struct comm_reduction *r, bool whole, void *data)
{
    for (int64_t i = 0; i < r->count; i++)
        cases_set(data, r->type, i, cases_number(c->rank, i, r->tag, whole));
}

/* What the element must be: NaN where anything may stand. */
static double cases_expected(const struct comm_reduction *r, int position, const double *x,
                             double exact, bool whole, int64_t i)
{
    int owner = cases_slice(i, r->count, r->n_members);
    if (r->kind == COMM_ALL_GATHER)
        return x[owner];
    if (r->kind == COMM_REDUCE_SCATTER && owner != position)
        return NAN;
    return whole ? exact : cases_serial_sum(r, x, i);
}

static int cases_position(const comm *c, const struct comm_reduction *r)
{
    for (int p = 0; p < r->n_members; p++) {
        if (r->members[p] == c->rank)
            return p;
    }
    return -1;
}

/* Bit for bit. */
static bool cases_compare(const comm *c, const struct comm_reduction *r, bool whole,
                          const void *data, struct cases_report *report)
{
    for (int64_t i = 0; i < r->count; i++) {
        double x[CASES_MAX_WORKERS], exact = 0;
        for (int p = 0; p < r->n_members; p++) {
            x[p] = cases_number(r->members[p], i, r->tag, whole);
            exact += x[p];
            if (r->type == ELEMENT_F32)
                x[p] = (double)(float)x[p];
        }
        double expected = cases_expected(r, cases_position(c, r), x, exact, whole, i);
        if (isnan(expected))
            continue;
        double actual =
            r->type == ELEMENT_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
        CASES_CHECK(report, memcmp(&actual, &expected, sizeof actual) == 0,
                    "worker %d: %s by %s of %d members, %lld elements, node %d: element %lld is "
                    "%.17g, not %.17g",
                    c->rank, comm_kind_name(r->kind), comm_method_name(r->method), r->n_members,
                    (long long)r->count, r->node_size, (long long)i, actual, expected);
    }
    return true;
}

/* One reduction, if this worker is a member. */
static bool cases_reduce(comm *c, const struct comm_reduction *r, bool whole,
                         struct cases_report *report)
{
    int position = cases_position(c, r);
    if (position < 0)
        return true;
    size_t n_bytes = (size_t)(r->count * cases_type_bytes(r->type));
    size_t guard = 64;
    char *data = malloc(n_bytes + guard);
    void *workspace = malloc((size_t)c->table->reduce_workspace_bytes(r) + 1);
    memset(data, 0x5a, n_bytes + guard);
    cases_fill(c, r, whole, data);
    int64_t sent_before = c->sent_bytes;
    comm_op op;
    bool ok = c->table->start_reduce(c, r, data, workspace, &op) == STATUS_OK;
    if (!ok)
        (void)snprintf(report->text, sizeof report->text, "start_reduce: %s", status_message());
    ok = ok && cases_wait(c, &op, 1, report) && cases_compare(c, r, whole, data, report);
    for (size_t i = 0; i < guard && ok; i++) {
        ok = data[n_bytes + i] == 0x5a;
        if (!ok)
            (void)snprintf(report->text, sizeof report->text, "written behind the end");
    }
    if (ok && c->sent_bytes - sent_before != comm_reduce_sent_bytes(r, position)) {
        (void)snprintf(report->text, sizeof report->text, "%s sent %lld bytes, not %lld",
                       comm_method_name(r->method), (long long)(c->sent_bytes - sent_before),
                       (long long)comm_reduce_sent_bytes(r, position));
        ok = false;
    }
    free(data);
    free(workspace);
    return ok;
}

int cases_subset(int size, int i, int *members)
{
    int n = 0;
    switch (i) {
    case 0: /* all */
        for (int w = 0; w < size; w++)
            members[n++] = w;
        return n;
    case 1: /* the first and the last */
        if (size < 3)
            return 0;
        members[n++] = 0;
        members[n++] = size - 1;
        return n;
    case 2: /* all but the first */
        if (size < 3)
            return 0;
        for (int w = 1; w < size; w++)
            members[n++] = w;
        return n;
    case 3: /* every other one, from the second */
        if (size < 4)
            return 0;
        for (int w = 1; w < size; w += 2)
            members[n++] = w;
        return n;
    default:
        return 0;
    }
}

bool cases_run_reductions(comm *c, int64_t large, struct cases_report *report)
{
    const int64_t counts[] = {0, 1, 2, 3, 5, 64, 1000, 4099, 66001, large};
    int64_t tag = 0;
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        /* the methods of an all-reduce, and behind them the halves of a ring */
        for (int way = 0; way < COMM_METHOD_COUNT + COMM_KIND_COUNT - 1; way++) {
            bool half = way >= COMM_METHOD_COUNT;
            int members[CASES_MAX_WORKERS];
            int n;
            for (int subset = 0; (n = cases_subset(c->size, subset, members)) > 0; subset++) {
                for (int variant = 0; variant < 4; variant++) {
                    struct comm_reduction r = {
                        .kind =
                            half ? (enum comm_kind)(way - COMM_METHOD_COUNT + 1) : COMM_ALL_REDUCE,
                        .method = half ? COMM_RING : (enum comm_method)way,
                        .type = variant & 1 ? ELEMENT_F64 : ELEMENT_F32,
                        .n_members = n,
                        .members = members,
                        .node_size = 1 + (int)(tag % 3),
                        .count = counts[k],
                        .tag = tag % 100, /* tags come again */
                    };
                    tag++;
                    if (!cases_reduce(c, &r, variant < 2, report))
                        return false;
                }
            }
        }
    }
    return true;
}

bool cases_run_many_at_once(comm *c, struct cases_report *report)
{
    enum { MANY = 24, STEPS = 5 };
    int members[CASES_MAX_WORKERS];
    int n = cases_subset(c->size, 0, members);
    struct comm_reduction r[MANY];
    void *data[MANY], *workspace[MANY];
    comm_op ops[MANY];
    bool ok = true;
    for (int i = 0; i < MANY; i++) {
        bool half = i % 7 == 6;
        r[i] = (struct comm_reduction){.kind = half ? COMM_REDUCE_SCATTER : COMM_ALL_REDUCE,
                                       .method = half ? COMM_RING
                                                      : (enum comm_method)(i % COMM_METHOD_COUNT),
                                       .n_members = n,
                                       .members = members,
                                       .node_size = 2,
                                       .count = 37 + 1511 * (int64_t)i * (i % 5),
                                       .tag = 1000 + i};
        data[i] = malloc((size_t)r[i].count * sizeof(float));
        workspace[i] = malloc((size_t)c->table->reduce_workspace_bytes(&r[i]) + 1);
    }
    for (int step = 0; step < STEPS && ok; step++) {
        for (int i = 0; i < MANY && ok; i++) {
            cases_fill(c, &r[i], false, data[i]);
            ok = c->table->start_reduce(c, &r[i], data[i], workspace[i], &ops[i]) == STATUS_OK;
            if (!ok)
                (void)snprintf(report->text, sizeof report->text, "%s", status_message());
        }
        ok = ok && cases_wait(c, ops, MANY, report);
        for (int i = 0; i < MANY && ok; i++)
            ok = cases_compare(c, &r[i], false, data[i], report);
    }
    for (int i = 0; i < MANY; i++) {
        free(data[i]);
        free(workspace[i]);
    }
    return ok;
}

/* ---- transfers ---- */

static void cases_fill_bytes(unsigned char *bytes, int64_t n, int from, int to, int64_t key)
{
    for (int64_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 251 + from * 31 + to * 17 + key * 13);
}

static bool cases_bytes_are(const unsigned char *bytes, int64_t n, int from, int to, int64_t key)
{
    for (int64_t i = 0; i < n; i++) {
        if (bytes[i] != (unsigned char)(i * 7 + i / 251 + from * 31 + to * 17 + key * 13))
            return false;
    }
    return true;
}

bool cases_run_transfers(comm *c, struct cases_report *report)
{
    const int64_t sizes[] = {0, 1, 777, 65536, 300001};
    int64_t largest = 300001;
    int n = c->size, n_ops = 4 * (n - 1);
    unsigned char *room = malloc((size_t)(4 * n * largest));
    comm_op ops[4 * CASES_MAX_WORKERS];
    bool ok = true;
    for (int step = 0; step < 10 && ok; step++) {
        int64_t n_bytes = sizes[step % 5];
        int at = 0;
        memset(room, 0, (size_t)(4 * n * largest));
        for (int k = 1; k < n && ok; k++) {
            int to = (c->rank + k) % n, from = (c->rank + n - k) % n;
            for (int t = 0; t < 2 && ok; t++) {
                unsigned char *out = room + (int64_t)(4 * k + t) * largest;
                cases_fill_bytes(out, n_bytes, c->rank, to, step * 2 + t);
                ok = c->table->start_send(c, to, 5 + t, out, n_bytes, &ops[at++]) == STATUS_OK &&
                     c->table->start_receive(c, from, 5 + (1 - t),
                                             room + (int64_t)(4 * k + 3 - t) * largest, n_bytes,
                                             &ops[at++]) == STATUS_OK;
            }
        }
        if (!ok)
            (void)snprintf(report->text, sizeof report->text, "%s", status_message());
        ok = ok && cases_wait(c, ops, n_ops, report);
        for (int k = 1; k < n && ok; k++) {
            int from = (c->rank + n - k) % n;
            for (int t = 0; t < 2 && ok; t++) {
                ok = cases_bytes_are(room + (int64_t)(4 * k + 2 + t) * largest, n_bytes, from,
                                     c->rank, step * 2 + t);
                if (!ok)
                    (void)snprintf(report->text, sizeof report->text,
                                   "worker %d: wrong bytes from worker %d, step %d, tag %d",
                                   c->rank, from, step, 5 + t);
            }
        }
    }
    free(room);
    return ok;
}

bool cases_run_tag_reuse(comm *c, struct cases_report *report)
{
    enum { STEPS = 30 };
    if (c->rank > 1)
        return true;
    int numbers[STEPS];
    comm_op ops[STEPS];
    for (int i = 0; i < STEPS; i++) {
        numbers[i] = c->rank == 0 ? i * i : -1;
        if (c->rank == 0)
            CASES_OK(report, c->table->start_send(c, 1, 9, &numbers[i], sizeof *numbers, &ops[i]));
    }
    if (c->rank == 0)
        return cases_wait(c, ops, STEPS, report);
    for (int i = 0; i < STEPS; i++) {
        CASES_OK(report, c->table->start_receive(c, 0, 9, &numbers[i], sizeof *numbers, &ops[i]));
        if (!cases_wait(c, &ops[i], 1, report))
            return false;
        CASES_CHECK(report, numbers[i] == i * i, "message %d is %d", i, numbers[i]);
    }
    return true;
}

/* ---- control ---- */

bool cases_run_control(comm *c, struct cases_report *report)
{
    int64_t all[CASES_MAX_WORKERS];
    for (int64_t round = 0; round < 5; round++) {
        int64_t mine = c->rank * 100 + round;
        CASES_OK(report, c->table->exchange(c, &mine, sizeof mine, all));
        for (int i = 0; i < c->size; i++)
            CASES_CHECK(report, all[i] == i * 100 + round, "exchange: %lld from worker %d",
                        (long long)all[i], i);
        CASES_OK(report, c->table->exchange(c, NULL, 0, NULL)); /* a barrier */
        int root = (int)(round % c->size);
        int64_t value = c->rank == root ? 77 + round : -1;
        CASES_OK(report, c->table->broadcast(c, root, &value, sizeof value));
        CASES_CHECK(report, value == 77 + round, "broadcast: %lld", (long long)value);
    }
    double large[3000];
    for (int i = 0; i < 3000; i++)
        large[i] = c->rank == 0 ? i * 0.5 : 0;
    if (c->rank == 0 && c->size > 1) {
        for (int i = 1; i < c->size; i++)
            CASES_OK(report, c->table->send(c, i, large, sizeof large));
    } else if (c->size > 1) {
        CASES_OK(report, c->table->receive(c, 0, large, sizeof large));
    }
    CASES_CHECK(report, large[2999] == 1499.5, "control message: %g", large[2999]);
    return true;
}
