/* The backends of this build. The only file that knows which were compiled in. */
#include "backend/backend.h"
#include "backend/reference/reference.h"
#include "base/text.h"

#include <string.h>
#include <strings.h>

#ifdef CLEAVE_HAVE_CPU_BACKEND
#include "backend/cpu/cpu.h"
#endif

static const struct backend *const backends[] = {
#ifdef CLEAVE_HAVE_CPU_BACKEND
    &backend_cpu,
#endif
    &backend_reference,
    NULL,
};

const struct backend *const *backend_list(void)
{
    return backends;
}

enum status backend_find(const char *name, const struct backend **out)
{
    const char *names[sizeof backends / sizeof backends[0]] = {NULL};
    for (int i = 0; backends[i]; i++) {
        names[i] = backends[i]->name;
        if (strcmp(name, names[i]) == 0) {
            *out = backends[i];
            return STATUS_OK;
        }
    }
    if (strcasecmp(name, "gpu") == 0 || strcasecmp(name, "cuda") == 0)
        return status_fail(STATUS_USAGE,
                           "backend '%s': this build has none for GPUs ('cleave predict --machine "
                           "1x1:h200' says what one would take)",
                           name);
    return text_fail_unknown("backend", name, names);
}

int update_rule_states(const struct update_rule *rule)
{
    if (rule->kind == UPDATE_ADAMW)
        return 2;
    return rule->momentum != 0;
}
