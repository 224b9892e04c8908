#include "base/style.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool style_can_rewrite(FILE *f)
{
    const char *terminal = getenv("TERM");
    return isatty(fileno(f)) && (!terminal || strcmp(terminal, "dumb") != 0);
}

/* As no-color.org defines it: set, and not empty. */
static bool has_colour(FILE *f)
{
    const char *refused = getenv("NO_COLOR");
    return style_can_rewrite(f) && !(refused && *refused);
}

const char *style_begin(FILE *f, enum style style)
{
    static const char *const codes[] = {[STYLE_PLAIN] = "",
                                        [STYLE_STRONG] = "\033[1m",
                                        [STYLE_GOOD] = "\033[32m",
                                        [STYLE_WARNING] = "\033[33m",
                                        [STYLE_BAD] = "\033[31m"};
    return has_colour(f) ? codes[style] : "";
}

const char *style_end(FILE *f)
{
    return has_colour(f) ? "\033[0m" : "";
}

int style_columns(FILE *f)
{
    struct winsize size;
    if (ioctl(fileno(f), TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return 80;
    return size.ws_col;
}
