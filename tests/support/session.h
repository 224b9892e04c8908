/* session.h: what the tests of programs and executors share: a device, the programs of one network
 * over one set of weights, and their executor.
 *
 *     struct session s = {0};
 *     session_open(&s, "cpu", PRECISION_FLOAT); // skips the test where the build has no such one
 *     session_add(&s, "lenet5", &variant, true, 1);   // program 0 lays out the weights
 *     session_add(&s, "lenet5", &variant, false, 0);  // program 1 shares them
 *     session_start(&s);
 *     ...
 *     session_close(&s);
 */
#ifndef CLEAVE_TESTS_SESSION_H
#define CLEAVE_TESTS_SESSION_H

#include "model/network.h"
#include "runtime/executor.h"
#include "testing.h"

enum { SESSION_MAX_PROGRAMS = 4 };

struct session {
    const struct backend *backend;
    device *device;
    enum precision precision;
    int n_programs;
    struct graph *graph[SESSION_MAX_PROGRAMS];
    struct program *program[SESSION_MAX_PROGRAMS];
    executor *executor;
};

bool session_has_backend(const char *name);

/* Behind a plan_build that failed: any strategy can use any number of workers, but for these two.
 * So a loop that leaves out refused strategies cannot come to leave out all. */
void session_expect_refusal(const char *strategy, int n_workers);

void session_open(struct session *s, const char *backend, enum precision precision);

/* Builds the network and lowers it; the first program lays out the weights for all. */
struct program *session_add(struct session *s, const char *model,
                            const struct graph_variant *variant, bool training, int n_states);

void session_start(struct session *s);

void session_close(struct session *s);

/* ---- numbers that every implementation computes alike: see fixtures/README.md ---- */

enum { FIXTURE_IMAGES = 1000003, FIXTURE_LABELS = 2000003 };

/* Element `element` of tensor number `tensor`: 64 mixed bits, and as a number in [-1, 1). */
uint64_t fixture_bits(uint64_t tensor, uint64_t element);

double fixture_number(uint64_t tensor, uint64_t element);

/* A batch of step `step` for a graph, in memory of its own. */
struct fixture_batch {
    float *images;
    int32_t *labels;
};

void fixture_fill_batch(const struct graph *g, uint64_t step, struct fixture_batch *b);

struct fixture_batch fixture_make_batch(const struct graph *g, uint64_t step);

void fixture_free_batch(struct fixture_batch *b);

/* One step of program `program` on a batch; the loss. */
double session_step(struct session *s, int program, const struct fixture_batch *b,
                    const struct update_rule *rule, uint32_t step);

#endif
