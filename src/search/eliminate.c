/* Equation 1 of Jia et al. 2018: the step takes the sum over nodes of cost(choice) and over edges
 * of cost(choice of one end, choice of the other), and every node has one choice:
 *
 *     t(S)  =  sum over nodes i of t(i, S(i))  +  sum over edges (i, j) of t(i, j, S(i), S(j))
 *
 * Node elimination (figure 5): with two neighbours a and b of x the best choice of x depends on
 * theirs alone, so x and its edges become one edge, without losing any optimum:
 *
 *     t'(a, b, p, q)  =  min over c of  t(a, x, p, c) + t(x, c) + t(x, b, c, q)
 *
 * which is a product of matrices with (min, +) in place of (+, *). Edge elimination: two edges
 * between a and b become one, t'(a, b, p, q) = t1(a, b, p, q) + t2(a, b, p, q). An Inception module
 * vanishes so (figure 6): each branch becomes an edge, the parallel edges become one.
 *
 * With more neighbours the minimum is a table over all of them (bucket elimination), and its size
 * decides the order. When no node is left, the nodes get their choices in the reverse order: each
 * takes the least entry of the tables that it was in, all its neighbours being chosen already. */
#include "search/eliminate.h"

#include "base/array.h"

#include <math.h>
#include <string.h>

/* ---- making ---- */

static enum status add_table(struct draft *d, const struct table *t)
{
    TRY(array_reserve(d->memory, &d->tables, d->n_tables + 1, &d->tables_room, sizeof *t));
    d->tables[d->n_tables] = *t;
    for (int i = 0; i < t->n; i++) {
        struct list *l = &d->of_node[t->node[i]];
        TRY(array_reserve(d->memory, &l->items, l->n + 1, &l->room, sizeof *l->items));
        l->items[l->n++] = d->n_tables;
    }
    d->n_tables++;
    return STATUS_OK;
}

static struct table table_of_two(const struct draft *d, int a, int b, const double *cost)
{
    return (struct table){.n = 2, .node = {a, b}, .stride = {d->n_choices[b], 1}, .cost = cost};
}

/* 0: the table does not depend on the node. */
static int64_t stride_of(const struct table *t, int node)
{
    for (int i = 0; i < t->n; i++)
        if (t->node[i] == node)
            return t->stride[i];
    return 0;
}

/* A table over just these two nodes, or NULL. */
static struct table *find_pair(struct draft *d, int a, int b)
{
    const struct list *l = &d->of_node[d->of_node[a].n < d->of_node[b].n ? a : b];
    for (int i = 0; i < l->n; i++) {
        struct table *t = &d->tables[l->items[i]];
        if (!t->gone && t->n == 2 &&
            ((t->node[0] == a && t->node[1] == b) || (t->node[0] == b && t->node[1] == a)))
            return t;
    }
    return NULL;
}

/* Edge elimination: adds the table's entries to to[a][b]. */
static void add_pair(const struct draft *d, const struct table *t, int a, int b, double *to)
{
    int64_t rows = d->n_choices[a], columns = d->n_choices[b];
    int64_t stride_a = stride_of(t, a), stride_b = stride_of(t, b);
    for (int64_t x = 0; x < rows; x++)
        for (int64_t y = 0; y < columns; y++)
            to[x * columns + y] += t->cost[x * stride_a + y * stride_b];
}

static enum status add_edge(struct draft *d, int a, int b, const double *cost)
{
    struct table *parallel = find_pair(d, a, b);
    if (!parallel) {
        struct table t = table_of_two(d, a, b, cost);
        return add_table(d, &t);
    }
    double *sum;
    size_t n = (size_t)d->n_choices[a] * (size_t)d->n_choices[b];
    TRY(arena_alloc_array(d->memory, n, sizeof *sum, &sum));
    memcpy(sum, cost, n * sizeof *sum);
    add_pair(d, parallel, a, b, sum);
    *parallel = table_of_two(d, a, b, sum);
    return STATUS_OK;
}

static enum status start(struct draft *d, int n_nodes, const int *n_choices, arena *memory)
{
    size_t n = (size_t)n_nodes;
    *d = (struct draft){
        .memory = memory, .n_nodes = n_nodes, .n_left = n_nodes, .n_choices = n_choices};
    TRY(arena_alloc_array(memory, n, sizeof *d->cost, &d->cost));
    TRY(arena_alloc_array(memory, n, sizeof *d->left, &d->left));
    TRY(arena_alloc_array(memory, n, sizeof *d->of_node, &d->of_node));
    TRY(arena_alloc_array(memory, n, sizeof *d->size, &d->size));
    TRY(arena_alloc_array(memory, n, sizeof *d->mark, &d->mark));
    TRY(arena_alloc_array(memory, n, sizeof *d->steps, &d->steps));
    for (int i = 0; i < n_nodes; i++)
        d->size[i] = -1;
    return STATUS_OK;
}

enum status draft_create(const struct search_problem *problem, const int *n_choices, arena *memory,
                         struct draft *out)
{
    TRY(start(out, problem->n_nodes, n_choices, memory));
    for (int i = 0; i < problem->n_nodes; i++) {
        out->cost[i] = problem->nodes[i].cost;
        out->left[i] = true;
    }
    for (int i = 0; i < problem->n_edges; i++) {
        const struct search_edge *e = &problem->edges[i];
        TRY(add_edge(out, e->a, e->b, e->cost));
    }
    return STATUS_OK;
}

/* ---- fixing a node ---- */

static enum status add_to_node(struct draft *d, int node, const double *more, int64_t stride)
{
    double *sum;
    TRY(arena_alloc_array(d->memory, (size_t)d->n_choices[node], sizeof *sum, &sum));
    for (int x = 0; x < d->n_choices[node]; x++)
        sum[x] = d->cost[node][x] + more[x * stride];
    d->cost[node] = sum;
    return STATUS_OK;
}

/* The table without `node`, whose entries begin at `cost`: strides stay, so nothing is copied. */
static enum status add_slice(struct draft *d, const struct table *t, int node, const double *cost)
{
    struct table slice = {.cost = cost};
    for (int i = 0; i < t->n; i++)
        if (t->node[i] != node) {
            slice.node[slice.n] = t->node[i];
            slice.stride[slice.n++] = t->stride[i];
        }
    if (slice.n == 1)
        return add_to_node(d, slice.node[0], cost, slice.stride[0]);
    return add_table(d, &slice);
}

enum status draft_fix(const struct draft *from, int node, int choice, arena *memory,
                      struct draft *out)
{
    TRY(start(out, from->n_nodes, from->n_choices, memory));
    memcpy(out->cost, from->cost, (size_t)from->n_nodes * sizeof(const double *));
    memcpy(out->left, from->left, (size_t)from->n_nodes * sizeof *from->left);
    out->left[node] = false;
    out->n_left = from->n_left - 1;
    out->outer = from;
    out->constant = from->constant + from->cost[node][choice];
    for (int i = 0; i < from->n_tables; i++) {
        const struct table *t = &from->tables[i];
        if (t->gone)
            continue;
        int64_t stride = stride_of(t, node);
        if (stride)
            TRY(add_slice(out, t, node, t->cost + choice * stride));
        else
            TRY(add_table(out, t));
    }
    return STATUS_OK;
}

/* ---- neighbours ---- */

/* All others in the tables of a node, each once; at most `room` are written, all are counted. */
static int find_neighbours(struct draft *d, int node, int *out, int room)
{
    const struct list *l = &d->of_node[node];
    int n = 0;
    d->mark[node] = ++d->mark_now;
    for (int i = 0; i < l->n; i++) {
        const struct table *t = &d->tables[l->items[i]];
        for (int k = 0; !t->gone && k < t->n; k++) {
            if (d->mark[t->node[k]] == d->mark_now)
                continue;
            d->mark[t->node[k]] = d->mark_now;
            if (n < room)
                out[n] = t->node[k];
            n++;
        }
    }
    return n;
}

static double size_without(struct draft *d, int node)
{
    int others[TABLE_MAX_NODES];
    int n = find_neighbours(d, node, others, TABLE_MAX_NODES);
    if (n > TABLE_MAX_NODES)
        return INFINITY;
    double size = n <= 2 ? 0 : 1; /* those come first, however large */
    for (int i = 0; i < n; i++)
        size *= d->n_choices[others[i]];
    return size;
}

static int find_smallest(struct draft *d)
{
    int best = -1;
    for (int i = 0; i < d->n_nodes; i++) {
        if (!d->left[i])
            continue;
        if (d->size[i] < 0)
            d->size[i] = size_without(d, i);
        if (best < 0 || d->size[i] < d->size[best])
            best = i;
    }
    return best;
}

int draft_busiest(struct draft *d)
{
    int best = -1, most = -1, unused[1];
    for (int i = 0; i < d->n_nodes; i++) {
        int n = d->left[i] ? find_neighbours(d, i, unused, 0) : -1;
        if (n > most) {
            most = n;
            best = i;
        }
    }
    return best;
}

/* ---- minima ---- */

/* out[a][b] = min over x of left[a][x] + right[x][b]. Four rows of `out` stay in the nearest cache
 * while `right` passes once for all of them. */
static void multiply(const double *restrict left, const double *restrict right,
                     double *restrict out, int rows, int inner, int columns)
{
    enum { ROWS = 4 };
    for (int64_t i = 0; i < (int64_t)rows * columns; i++)
        out[i] = INFINITY;
    for (int a = 0; a < rows; a += ROWS) {
        int end = a + ROWS < rows ? a + ROWS : rows;
        for (int x = 0; x < inner; x++) {
            const double *from = right + (int64_t)x * columns;
            for (int r = a; r < end; r++) {
                double *to = out + (int64_t)r * columns, l = left[(int64_t)r * inner + x];
                for (int b = 0; b < columns; b++) {
                    double sum = l + from[b];
                    to[b] = sum < to[b] ? sum : to[b];
                }
            }
        }
    }
}

/* The pair's costs as [a][b], plus (where given) costs of b: a copy. */
static enum status lay_out(struct draft *d, const struct table *t, int a, int b, const double *of_b,
                           double **out)
{
    int64_t rows = d->n_choices[a], columns = d->n_choices[b];
    int64_t stride_a = stride_of(t, a), stride_b = stride_of(t, b);
    TRY(arena_alloc_array(d->memory, (size_t)(rows * columns), sizeof **out, out));
    for (int64_t x = 0; x < rows; x++)
        for (int64_t y = 0; y < columns; y++)
            (*out)[x * columns + y] = t->cost[x * stride_a + y * stride_b] + (of_b ? of_b[y] : 0);
    return STATUS_OK;
}

/* Node elimination, figure 5: a --- x --- b. */
static enum status join_neighbours(struct draft *d, const struct step *s)
{
    int other[2];
    double *left, *right, *joined;
    for (int i = 0; i < 2; i++)
        other[i] = s->tables[i].node[s->tables[i].node[0] == s->node ? 1 : 0];
    int rows = d->n_choices[other[0]], columns = d->n_choices[other[1]];
    TRY(lay_out(d, &s->tables[0], other[0], s->node, s->cost, &left));
    TRY(lay_out(d, &s->tables[1], s->node, other[1], NULL, &right));
    TRY(arena_alloc_array(d->memory, (size_t)rows * (size_t)columns, sizeof *joined, &joined));
    multiply(left, right, joined, rows, d->n_choices[s->node], columns);
    return add_edge(d, other[0], other[1], joined);
}

/* A table's entry while the choices of `scope` are counted up: `at` moves by `move[k]` with each
 * choice of scope[k]. */
struct reader {
    const double *at;
    int64_t stride; /* of the node that goes */
    int64_t move[TABLE_MAX_NODES];
};

static double least_of(const struct reader *readers, int n, const double *cost, int n_choices)
{
    double least = INFINITY;
    for (int x = 0; x < n_choices; x++) {
        double sum = cost ? cost[x] : 0;
        for (int i = 0; i < n; i++)
            sum += readers[i].at[x * readers[i].stride];
        least = sum < least ? sum : least;
    }
    return least;
}

/* The next choices of all of scope, the last fastest. */
static void count_up(struct reader *readers, int n, int *digit, const int *scope, int n_scope,
                     const int *n_choices)
{
    for (int k = n_scope - 1; k >= 0; k--) {
        bool carry = ++digit[k] == n_choices[scope[k]];
        for (int i = 0; i < n; i++)
            readers[i].at += carry ? -readers[i].move[k] * (digit[k] - 1) : readers[i].move[k];
        if (!carry)
            return;
        digit[k] = 0;
    }
}

static int find_scope(struct draft *d, const struct table *tables, int n, int node, int *scope)
{
    int n_scope = 0;
    d->mark[node] = ++d->mark_now;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < tables[i].n; k++)
            if (d->mark[tables[i].node[k]] != d->mark_now) {
                d->mark[tables[i].node[k]] = d->mark_now;
                scope[n_scope++] = tables[i].node[k];
            }
    return n_scope;
}

/* Makes one table over the neighbours of `node` out of those that it is in. */
static enum status replace_tables(struct draft *d, int node, const double *cost,
                                  const struct table *tables, int n)
{
    int scope[TABLE_MAX_NODES], digit[TABLE_MAX_NODES] = {0};
    int n_scope = find_scope(d, tables, n, node, scope);
    struct table made = {.n = n_scope};
    struct reader *readers;
    double *least;
    int64_t size = 1;
    for (int k = n_scope - 1; k >= 0; k--) {
        made.node[k] = scope[k];
        made.stride[k] = size;
        size *= d->n_choices[scope[k]];
    }
    TRY(arena_alloc_array(d->memory, (size_t)n, sizeof *readers, &readers));
    TRY(arena_alloc_array(d->memory, (size_t)size, sizeof *least, &least));
    for (int i = 0; i < n; i++) {
        readers[i].at = tables[i].cost;
        readers[i].stride = stride_of(&tables[i], node);
        for (int k = 0; k < n_scope; k++)
            readers[i].move[k] = stride_of(&tables[i], scope[k]);
    }
    for (int64_t i = 0; i < size; i++) {
        least[i] = least_of(readers, n, cost, d->n_choices[node]);
        if (i + 1 < size)
            count_up(readers, n, digit, scope, n_scope, d->n_choices);
    }
    made.cost = least;
    if (n_scope == 0)
        d->constant += least[0];
    else if (n_scope == 1)
        TRY(add_to_node(d, scope[0], least, 1));
    else if (n_scope == 2)
        TRY(add_edge(d, scope[0], scope[1], least));
    else
        TRY(add_table(d, &made));
    return STATUS_OK;
}

/* ---- taking out ---- */

/* The node leaves; its tables are gone from the draft and stay in the step, the last one now. */
static enum status begin_step(struct draft *d, int node)
{
    const struct list *l = &d->of_node[node];
    struct step *s = &d->steps[d->n_steps++];
    struct table *tables;
    *s = (struct step){.node = node, .cost = d->cost[node]};
    TRY(arena_alloc_array(d->memory, (size_t)l->n, sizeof *tables, &tables));
    s->tables = tables;
    for (int i = 0; i < l->n; i++) {
        struct table *t = &d->tables[l->items[i]];
        if (t->gone)
            continue;
        tables[s->n_tables++] = *t;
        t->gone = true;
        for (int k = 0; k < t->n; k++)
            d->size[t->node[k]] = -1;
    }
    d->left[node] = false;
    d->n_left--;
    return STATUS_OK;
}

static bool is_link(const struct step *s)
{
    const struct table *t = s->tables;
    return s->n_tables == 2 && t[0].n == 2 && t[1].n == 2 &&
           t[0].node[0] + t[0].node[1] != t[1].node[0] + t[1].node[1]; /* not the same two */
}

static enum status take_out(struct draft *d, int node)
{
    TRY(begin_step(d, node));
    const struct step *s = &d->steps[d->n_steps - 1];
    if (is_link(s))
        return join_neighbours(d, s);
    return replace_tables(d, node, s->cost, s->tables, s->n_tables);
}

enum status draft_take_smallest(struct draft *d, int64_t limit, bool *done)
{
    int node = find_smallest(d);
    *done = d->size[node] <= (double)limit;
    if (!*done)
        return STATUS_OK;
    int unused[1];
    bool reduces = find_neighbours(d, node, unused, 0) <= 2;
    d->n_reduced += reduces;
    d->n_tabled += !reduces;
    d->n_sums += d->size[node] * d->n_choices[node];
    return take_out(d, node);
}

/* A heap of tables with at most two neighbours together, starting at tables[first]; those taken are
 * moved to the front. Returns its end. */
static int gather_heap(struct draft *d, struct table *tables, int first, int n, int node)
{
    int end = first + 1, scope[2 * TABLE_MAX_NODES];
    for (int i = end; i < n; i++) {
        struct table kept = tables[end];
        tables[end] = tables[i];
        tables[i] = kept;
        bool small =
            tables[end].n <= 3 && find_scope(d, tables + first, end + 1 - first, node, scope) <= 2;
        if (small) {
            end++;
            continue;
        }
        tables[i] = tables[end];
        tables[end] = kept;
    }
    return end;
}

enum status draft_relax_smallest(struct draft *d)
{
    int node = find_smallest(d);
    struct table *tables;
    if (d->size[node] <= 0)
        return take_out(d, node);
    TRY(begin_step(d, node));
    const struct step *s = &d->steps[d->n_steps - 1];
    TRY(arena_alloc_array(d->memory, (size_t)s->n_tables, sizeof *tables, &tables));
    for (int i = 0; i < s->n_tables; i++)
        tables[i] = s->tables[i];
    const double *cost = s->cost; /* in one of the heaps */
    for (int i = 0, end; i < s->n_tables; i = end) {
        end = gather_heap(d, tables, i, s->n_tables, node);
        TRY(replace_tables(d, node, cost, tables + i, end - i));
        cost = NULL;
    }
    return STATUS_OK;
}

/* ---- the way back ---- */

static int choose(const struct draft *d, const struct step *s, const int *choice)
{
    int best = 0;
    double least = INFINITY;
    for (int x = 0; x < d->n_choices[s->node]; x++) {
        double sum = s->cost[x];
        for (int i = 0; i < s->n_tables; i++) {
            const struct table *t = &s->tables[i];
            int64_t at = 0;
            for (int k = 0; k < t->n; k++)
                at += t->stride[k] * (t->node[k] == s->node ? x : choice[t->node[k]]);
            sum += t->cost[at];
        }
        if (sum < least) {
            least = sum;
            best = x;
        }
    }
    return best;
}

void draft_choose(const struct draft *d, int *choice)
{
    for (; d; d = d->outer)
        for (int i = d->n_steps - 1; i >= 0; i--)
            choice[d->steps[i].node] = choose(d, &d->steps[i], choice);
}
