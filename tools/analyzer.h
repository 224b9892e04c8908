/* analyzer.h: included before every source by tools/tidy.sh, and by nothing else.
 *
 * clang-tidy looks at one file at a time and cannot know that status_fail never gives STATUS_OK and
 * that status_trace gives back what it was given; it would follow paths on which a failure counts
 * as success. These say so.
 */
#ifndef CLEAVE_TOOLS_ANALYZER_H
#define CLEAVE_TOOLS_ANALYZER_H

#include "base/status.h"

static inline enum status analyzer_same(enum status ignored, enum status status)
{
    (void)ignored;
    return status;
}

#define status_fail(status, ...) analyzer_same(status_fail((status), __VA_ARGS__), (status))
#define status_fail_content(...) analyzer_same(status_fail_content(__VA_ARGS__), STATUS_FAILED)
#define status_no_memory(n_bytes) analyzer_same(status_no_memory(n_bytes), STATUS_FAILED)
#define status_trace(status, file, line) \
    analyzer_same((status_trace)((status), file, line), (status))

#endif
