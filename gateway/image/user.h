/* The user that an image names, looked up in its own /etc/passwd and /etc/group. The process has the image as its root folder. */
#ifndef AK_IMAGE_USER_H
#define AK_IMAGE_USER_H

#include "gateway/base/err.h"

#include <stdint.h>

struct image_user {
	uint32_t uid, gid;
	char home[256];
};

/* USER is "", "name", "uid", "name:group" or "uid:gid", as in a configuration. */
int image_user_find(const char *user, struct image_user *ret, struct ak_err *err);

/*
 * Exchange the owners 0 and USER of every file. A sandbox that runs as USER has the invoker's id, under which root unpacked the
 * image; it maps 0 to the other one, so that inside every file has the owner that the image gave it.
 */
int image_user_settle(const struct image_user *user, struct ak_err *err);

#endif
