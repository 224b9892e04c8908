/* candidates_searched.h: the candidates that the searches find (layers.h, pipelines.h). Not for use
 * outside this room.
 */
#ifndef CLEAVE_SEARCH_CANDIDATES_SEARCHED_H
#define CLEAVE_SEARCH_CANDIDATES_SEARCHED_H

#include "profile/costs.h"
#include "profile/measure.h"
#include "search/candidates.h"
#include "search/problem.h"

/* The costs of computing that the clock had for plain data parallelism. */
struct known_costs {
    bool known;
    profile *profile;
    const bool *kinds_here;            /* as in predict_request */
    char device[MEASURE_DEVICE_BYTES]; /* of both settings; the prediction's own may be gone */
    struct profile_setting busy, alone;
    struct cost_scales scales;
    const char *transport;
    int n_states;
};

void known_costs_take(struct known_costs *to, const struct predict_request *request,
                      const struct prediction *p);

/* By kind of the machine, in `memory`. */
enum status known_costs_find_sources(const struct known_costs *costs, const struct machine *machine,
                                     arena *memory, const struct cost_source **out) MUST_USE;

/* Appends the per-layer optimum for several shares of the sums of gradients that are taken to hide
 * behind backward ("per layer 90%"; "per layer": none), and the best pipelines. Being stopped is no
 * failure: the plans found by then are there.
 */
enum status candidates_list_searched(const struct candidate_request *request,
                                     const struct known_costs *costs,
                                     const struct search_options *layers,
                                     const struct search_options *pipelines,
                                     struct candidate_list *to) MUST_USE;

#endif
