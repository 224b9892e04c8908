/* Machines. */
#include "api/handles.h"
#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void describe_device(const struct machine *m, int i, struct cleave_device *to)
{
    const struct machine_device *d = &m->devices[i];
    const struct machine_kind *k = &m->kinds[d->kind];
    *to = (struct cleave_device){.kind = k->name,
                                 .about = k->about,
                                 .node = d->node,
                                 .memory_bytes = machine_device_memory(m, i),
                                 .peak_flops_per_s = k->rates[ARITHMETIC_F32].peak,
                                 .memory_bytes_per_s = k->peak_bytes_per_s};
}

/* This host is told by its name: how it is shared out is for each plan to say. A file's text is
 * kept, as the file may change. */
static enum status keep_text(cleave_machine *m)
{
    if (!m->info.local)
        return machine_write_text(m->machine, &m->text);
    m->text = strdup("local");
    return m->text ? STATUS_OK : status_no_memory(sizeof "local");
}

/* For plans, which note what they were made for. */
static enum status keep_spec(cleave_machine *m, const char *text)
{
    char *bytes;
    size_t n_bytes;
    if (text[0] == '{')
        return STATUS_OK;
    m->spec = strdup(text);
    if (!m->spec)
        return status_no_memory(strlen(text));
    if (!machine_is_file(text))
        return STATUS_OK;
    TRY(text_read_file(text, "machine", &bytes, &n_bytes));
    (void)plan_digest_bytes(bytes, n_bytes, m->digest);
    free(bytes);
    return STATUS_OK;
}

static enum status fill(cleave_machine *m, const char *text)
{
    TRY(machine_parse(text, &m->machine));
    TRY(keep_spec(m, text));
    const struct machine *found = m->machine;
    m->info = (struct cleave_machine_info){.name = found->name,
                                           .local = strcmp(text, "local") == 0,
                                           .n_nodes = found->n_nodes,
                                           .n_devices = found->n_devices,
                                           .n_links = found->n_links};
    TRY(api_alloc((size_t)found->n_devices * sizeof *m->devices, &m->devices));
    for (int i = 0; i < found->n_devices; i++)
        describe_device(found, i, &m->devices[i]);
    return keep_text(m);
}

enum cleave_status cleave_machine_open(const char *text, cleave_machine **out)
{
    cleave_machine *m;
    API_BEGIN();
    API_NEEDS_OUT(out);
    API_NEEDS(text);
    enum status st = api_alloc(sizeof *m, &m);
    if (st != STATUS_OK)
        return api_end(st);
    st = fill(m, text);
    if (st == STATUS_OK)
        *out = m;
    else
        cleave_machine_destroy(m);
    return api_end(st);
}

void cleave_machine_destroy(cleave_machine *machine)
{
    if (!machine)
        return;
    machine_destroy(machine->machine);
    free(machine->devices);
    free(machine->text);
    free(machine->spec);
    free(machine);
}

enum cleave_status cleave_machine_save(const cleave_machine *machine, const char *path)
{
    API_BEGIN();
    API_NEEDS(machine);
    API_NEEDS(path);
    return api_end(machine_write_file(machine->machine, path));
}

const struct cleave_machine_info *cleave_machine_get_info(const cleave_machine *machine)
{
    return machine ? &machine->info : NULL;
}

const struct cleave_device *cleave_machine_get_device(const cleave_machine *machine, int index)
{
    return machine && index >= 0 && index < machine->info.n_devices ? &machine->devices[index]
                                                                    : NULL;
}
