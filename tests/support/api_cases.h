/* api_cases.h: what the tests of the public interface share: checked calls, a small model, plans.
 */
#ifndef CLEAVE_TESTS_API_CASES_H
#define CLEAVE_TESTS_API_CASES_H

#include "testing.h"

#include <cleave/cleave.h>

/* Status and a part of the message. */
#define assert_api_fails(expression, status, part) \
    check_api((expression), (status), (part), #expression, __LINE__)

#define assert_api_ok(expression) check_api((expression), CLEAVE_OK, "", #expression, __LINE__)

void check_api(enum cleave_status st, enum cleave_status expected, const char *part,
               const char *what, int line);

extern const char small_data[];

cleave_model *open_small(void);

cleave_plan *make_plan(const cleave_model *model, const char *strategy, int workers);

#endif
