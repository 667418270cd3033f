/* The process title: the command line that the process list shows. */
#ifndef AK_TITLE_H
#define AK_TITLE_H

#define AK_TITLE_MAX 128

/* Call once at the start of main. */
void ak_title_init(int argc, char **argv);

/*
 * Show this text instead. For a forked process: others see neither the arguments of its parent nor a command that happened to start it. Strings that
 * the caller still needs must not be in argv.
 */
void ak_title_set(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
