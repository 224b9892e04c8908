/* eliminate.h: elimination of nodes over tables, exact or as a bound; inside of search_solve.
 *
 * A draft is a problem from which nodes are taken out one by one. The costs of the nodes
 * that are left are in tables over some of them. Taking out node x replaces all tables that x is in
 * by one over its neighbours, their minimum over x; the tables that went are remembered, and when
 * the neighbours' choices are known, x's is found in them.
 */
#ifndef CLEAVE_SEARCH_ELIMINATE_H
#define CLEAVE_SEARCH_ELIMINATE_H

#include "base/arena.h"
#include "search/problem.h"

enum { TABLE_MAX_NODES = 12 };

/* Costs by the choices of n nodes, the last changing fastest. */
struct table {
    int n;
    int node[TABLE_MAX_NODES];
    int64_t stride[TABLE_MAX_NODES];
    const double *cost;
    bool gone;
};

/* A node that was taken out, and the tables that its choice depends on. */
struct step {
    int node;
    const double *cost;
    int n_tables;
    const struct table *tables; /* copies */
};

struct list {
    int n, room;
    int *items;
};

struct draft {
    arena *memory;
    const struct draft *outer; /* draft_fix: the one it was made from */
    int n_nodes, n_left;
    const int *n_choices;
    const double **cost; /* by node */
    bool *left;
    int n_tables, tables_room;
    struct table *tables;
    struct list *of_node; /* tables that a node is in; may hold some that are gone */
    double *size;         /* entries of the table that taking a node out would make; < 0: unknown */
    int *mark, mark_now;  /* scratch: nodes seen */
    int n_steps;
    struct step *steps;
    double constant; /* the least cost of the nodes taken out */
    int n_reduced, n_tabled;
    double n_sums; /* compared so far */
};

/* The whole problem; parallel edges are summed. Everything is in `memory`. */
enum status draft_create(const struct search_problem *problem, const int *n_choices, arena *memory,
                         struct draft *out) MUST_USE;
/* The rest of `from` with `node` fixed to `choice`; steps start anew. */
enum status draft_fix(const struct draft *from, int node, int choice, arena *memory,
                      struct draft *out) MUST_USE;

/* Takes out the node whose table is smallest. False in *done if that would have more than `limit`
 * entries: nothing is changed. Nodes with two neighbours are never too large. */
enum status draft_take_smallest(struct draft *d, int64_t limit, bool *done) MUST_USE;
/* The same, but a node whose table would be too large is split: its tables are put into heaps of
 * two neighbours or less, and each takes its own minimum. d->constant is then a bound. */
enum status draft_relax_smallest(struct draft *d) MUST_USE;

/* The node that is left with the most neighbours. */
int draft_busiest(struct draft *d);

/* Chooses for all nodes that were taken out, the last first, and then for those of the outer
 * drafts; the nodes that were fixed have their choice already. */
void draft_choose(const struct draft *d, int *choice);

#endif
