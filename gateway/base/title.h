/* What the process list shows of this process: the words it was started with. */
#ifndef AK_TITLE_H
#define AK_TITLE_H

/* Once, first thing in main. */
void ak_title_init(int argc, char **argv);

/* Show TEXT instead, cut to the room that the words had. For a process that others may look at, and that is a copy of one with words of its own. */
void ak_title_set(const char *text);

#endif
