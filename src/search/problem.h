/* problem.h: the abstract problem of the search, and its exact solution.
 *
 * Nodes have choices, a choice costs; an edge costs by the choices at both its ends. Wanted is one
 * choice for each node with the least sum (equation 1 of Jia et al. 2018, "Exploring hidden
 * dimensions in parallelizing convolutional neural networks"). Nothing here knows what a choice is.
 *
 * Solved by elimination, which is exact (figures 5 and 6 there):
 *
 *     node    a --- x --- b    becomes    a --- b    with   min over x of (a,x) + cost(x) + (x,b)
 *     edge    a === b          becomes    a --- b    with   the sum of both
 *
 * A node with one neighbour goes into that neighbour's costs. Most networks consist of
 * chains and branches that meet again, which vanish. The rest is eliminated in the order that keeps
 * tables small, with tables over more than two nodes; and where those would be too large, one node
 * is fixed to each of its choices in turn, best bound first, and the rest is solved with it fixed
 * (branch and bound; the bound is the same elimination, with edges in excess of two replaced by
 * their least rows). It always ends, and is always exact unless it is stopped.
 *
 *     const double cost[2] = {1, 2}, apart[4] = {0, 5, 5, 0};
 *     struct search_node nodes[2] = {{2, cost}, {2, cost}};
 *     struct search_edge edges[1] = {{0, 1, apart}};
 *     struct search_problem p = {2, nodes, 1, edges};
 *     int choice[2];
 *     struct search_answer answer;
 *     TRY(search_solve(&p, NULL, choice, &answer));       // {0, 0}, 2, optimal
 */
#ifndef CLEAVE_SEARCH_PROBLEM_H
#define CLEAVE_SEARCH_PROBLEM_H

#include "base/status.h"

#include <stdint.h>

/* Costs are finite and may be negative; INFINITY stands for a forbidden choice. Tables belong
 * to the caller, are only read, and may be shared by any number of nodes or edges. */
struct search_node {
    int n_choices; /* at least 1 */
    const double *cost;
};

struct search_edge {
    int a, b;           /* two different nodes */
    const double *cost; /* [choices of a][choices of b] */
};

struct search_problem {
    int n_nodes;
    const struct search_node *nodes;
    int n_edges;
    const struct search_edge *edges;
};

/* Asked now and then: true ends the search with the best so far. best is the least cost
 * found (INFINITY: nothing yet), and no answer can be below bound. */
typedef bool search_stop(void *user, double best, double bound);

struct search_options {
    search_stop *stop; /* NULL: never */
    void *user;
    /* For tests: tables of more entries are not made, and nodes fixed instead; 0: 2^22. */
    int64_t table_limit;
};

struct search_answer {
    double cost;  /* of the choices; INFINITY: no choices are allowed together */
    double bound; /* no choices cost less; == cost if optimal */
    bool optimal;
    /* How it was found, over all branches. */
    int64_t n_reduced;  /* nodes that node and edge elimination removed */
    int64_t n_tabled;   /* nodes with larger tables */
    int64_t n_branches; /* choices tried for nodes that were fixed */
    double n_sums;      /* that were compared: the work, whatever machine does it */
};

/* choice[node] of every node. `options` may be NULL. STATUS_USAGE for an edge that ends nowhere;
 * STATUS_FAILED without memory. Stopped is no failure: answer->optimal is false. */
enum status search_solve(const struct search_problem *problem, const struct search_options *options,
                         int *choice, struct search_answer *answer) MUST_USE;

/* The sum for given choices. */
double search_sum(const struct search_problem *problem, const int *choice);

#endif
