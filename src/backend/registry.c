/* The backends of this build. The only file that knows which were compiled in. */
#include "backend/backend.h"
#include "backend/reference/reference.h"
#include "base/text.h"

#include <stdio.h>
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

/* "float, double": all that it computes in. */
static const char *list_precisions(const struct backend *b, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int p = 0; p < PRECISION_COUNT; p++)
        if (b->computes_in((enum precision)p) && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "",
                                     precision_names[p]);
    return text;
}

enum status backend_check_precision(const struct backend *b, enum precision precision)
{
    char able[64];
    const char *name = precision_names[precision];
    if (b->computes_in(precision))
        return STATUS_OK;
    (void)list_precisions(b, able, sizeof able);
    for (const struct backend *const *other = backends; *other; other++)
        if ((*other)->computes_in(precision))
            return status_fail(STATUS_USAGE,
                               "the %s backend computes in %s; for %s use --backend %s", b->name,
                               able, name, (*other)->name);
    return status_fail(STATUS_USAGE,
                       "the %s backend computes in %s; %s is for the predictions of other devices "
                       "(--machine 1x1:a100-40)",
                       b->name, able, name);
}

int update_rule_states(const struct update_rule *rule)
{
    if (rule->kind == UPDATE_ADAMW)
        return 2;
    return rule->momentum != 0;
}

enum element group_output_type(const struct group_spec *spec)
{
    const struct precision_info *p = precision_get_info(spec->precision);
    return op_get_info(spec->op.op)->flags & OP_IS_LOSS ? p->statistic : p->activation;
}

/* Products read weights; the parameters of all others belong to statistics. */
enum element group_param_type(enum precision precision, enum op_kind op)
{
    const struct precision_info *p = precision_get_info(precision);
    return op_get_info(op)->flags & OP_SPLIT_GRADIENT ? p->weight : p->statistic;
}
