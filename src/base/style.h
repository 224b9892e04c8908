/* style.h: colour on terminals, unless the user has turned it off.
 *
 *     fprintf(f, "%serror:%s %s\n", style_begin(f, STYLE_BAD), style_end(f), message);
 *
 * Both are "" unless f is a terminal that knows escapes (TERM is not dumb) and NO_COLOR is not in
 * the environment. Colour never carries information that the words do not.
 */
#ifndef CLEAVE_BASE_STYLE_H
#define CLEAVE_BASE_STYLE_H

#include <stdbool.h>
#include <stdio.h>

enum style { STYLE_PLAIN, STYLE_STRONG, STYLE_GOOD, STYLE_WARNING, STYLE_BAD };

/* Whether f is a terminal on which the cursor can be moved and lines be rewritten. */
bool style_can_rewrite(FILE *f);

const char *style_begin(FILE *f, enum style style);
const char *style_end(FILE *f);

/* Columns of the terminal; 80 if it does not say, or there is none. */
int style_columns(FILE *f);

#endif
