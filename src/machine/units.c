/* Reads bandwidths, times and sizes with units. A number without one is none: nobody means 400
 * bytes a second by 400. */
#include "machine/machine.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double LARGEST_RATE = 1e18, LARGEST_SECONDS = 1e6, LARGEST_BYTES = 1e18;

/* Reads the number at the beginning of `text` and returns the text behind it; NULL: no number.
 * Decimal only: strtod would accept "inf" and hexadecimals. */
static const char *read_number(const char *text, double *out)
{
    char *end;
    if (!isdigit((unsigned char)text[0]) && text[0] != '.')
        return NULL;
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))
        return NULL;
    *out = strtod(text, &end);
    if (end == text || !isfinite(*out))
        return NULL;
    while (*end == ' ')
        end++;
    return end;
}

/* Reads k, M, G, T, P, or Ki, Mi, .. at *at and moves *at behind it. Returns the factor; 1 without
 * a prefix. */
static double read_prefix(const char **at)
{
    static const char letters[] = "kMGTP";
    const char *found = **at ? strchr(letters, **at == 'K' ? 'k' : **at) : NULL;
    if (!found)
        return 1;
    bool binary = (*at)[1] == 'i';
    *at += binary ? 2 : 1;
    return pow(binary ? 1024 : 1000, (double)(found - letters + 1));
}

bool machine_parse_bandwidth(const char *text, double *bytes_per_s)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"B/s", 1},        {"Bps", 1},     {"bit/s", 0.125},
                 {"bits/s", 0.125}, {"b/s", 0.125}, {"bps", 0.125}};
    double value;
    const char *unit = read_number(text, &value);
    if (!unit)
        return false;
    value *= read_prefix(&unit);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcmp(unit, units[i].name)) {
            value *= units[i].bytes;
            *bytes_per_s = value;
            return value > 0 && value <= LARGEST_RATE;
        }
    return false;
}

bool machine_parse_seconds(const char *text, double *seconds)
{
    static const struct {
        const char *name;
        double s;
    } units[] = {{"s", 1}, {"ms", 1e3}, {"us", 1e6}, {"ns", 1e9}};
    double value;
    const char *unit = read_number(text, &value);
    if (unit && value == 0 && !*unit)
        unit = units[0].name;
    for (size_t i = 0; unit && i < sizeof units / sizeof *units; i++)
        if (!strcmp(unit, units[i].name)) {
            *seconds = value / units[i].s; /* by division 5us equals 5e-6 exactly */
            return *seconds <= LARGEST_SECONDS;
        }
    return false;
}

bool machine_parse_bytes(const char *text, int64_t *n_bytes)
{
    double value;
    const char *unit = read_number(text, &value);
    if (!unit)
        return false;
    value *= read_prefix(&unit);
    if (strcmp(unit, "B") != 0 || value > LARGEST_BYTES)
        return false;
    *n_bytes = (int64_t)value;
    return true;
}
