/* title.h: candidates in words. Their names are short and stay as they are, for programs ("per
 * layer 90%", "1f1b 13-3 m8 r"); titles are for people ("best cut per layer", "pipeline 13+3, 8
 * micro-batches, recompute"). Candidates whose differences people do not see may share one. */
#ifndef CLEAVE_SEARCH_TITLE_H
#define CLEAVE_SEARCH_TITLE_H

#include "search/candidates.h"

enum { CANDIDATE_TITLE_BYTES = 120 };

/* Into a buffer, which is returned. n_workers: those of the machine. */
const char *candidate_title(const struct candidate *c, int n_workers,
                            char title[CANDIDATE_TITLE_BYTES]);

/* What the words in titles mean; ends with a NULL word. */
struct title_word {
    const char *word; /* a title has it */
    const char *meaning;
};
extern const struct title_word title_words[];

/* Whether two candidates are nearly the same plan: of one kind, for as many workers, in as many
 * stages, and, unless the search found both, as fast within CANDIDATES_GUESSED in as much memory.
 */
bool candidates_are_kin(const struct candidate *a, const struct candidate *b);

#endif
