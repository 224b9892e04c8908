/* log.h: every message that is not a result goes to stderr through this. */
#ifndef CLEAVE_BASE_LOG_H
#define CLEAVE_BASE_LOG_H

#include "base/status.h"

enum log_level { LOG_QUIET, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* The level is set once, by the program, before other threads start. The default is LOG_WARN. */
void log_set_level(enum log_level level);

/* Shows progress from now on. It is off at first, and so in programs that use the library. Set like
 * the level. */
void log_allow_progress(void);

/* Sends lines to this function instead of stderr, without the program's name, and shows no
 * progress; NULL: to stderr again. Set like the level. */
void log_set_sink(void (*write)(void *user, const char *line), void *user);

/* A line that is no warning, but that people should see: shown where warnings are. */
void log_note(const char *format, ...) PRINTF_LIKE(1, 2);
/* One line each; a progress line on the terminal is cleared first. */
void log_warn(const char *format, ...) PRINTF_LIKE(1, 2);
void log_info(const char *format, ...) PRINTF_LIKE(1, 2);
void log_debug(const char *format, ...) PRINTF_LIKE(1, 2);

/* Rewrites the one progress line, which is cut to the width of the terminal; does nothing unless
 * stderr is one and progress is allowed. progress.h adds the time that is left. */
void log_progress(const char *format, ...) PRINTF_LIKE(1, 2);
/* Ends the progress line, if one is shown, leaving the cursor on an empty line. */
void log_progress_end(void);

#endif
