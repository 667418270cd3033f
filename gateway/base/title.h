/* The process title: the command line that the process list shows. */
#ifndef AK_TITLE_H
#define AK_TITLE_H

/* Call once at the start of main. */
void ak_title_init(int argc, char **argv);

/*
 * Show TEXT instead, truncated to the length of the original command line. For a forked process, so that others do not see the
 * arguments of its parent.
 */
void ak_title_set(const char *text);

#endif
