/* The names of images, and the folders of the store. Private to this folder. */
#ifndef AK_IMAGE_NAMES_H
#define AK_IMAGE_NAMES_H

#include "gateway/base/err.h"
#include "gateway/image/image.h"

/* STATE/images[/NAME], and a descriptor of the folder itself. */
int image_dir(const struct ak_paths *paths, const char *name, char ret[static PATH_MAX]);
int image_dir_open(const struct ak_paths *paths, bool make, struct ak_err *err); /* -ENOENT without MAKE if there is none */

/* Remove a folder of the store, with files that belong to the user's subordinate ids. */
int image_tree_remove(int dir, const char *name);

/* Names in a folder that start with PREFIX. */
struct image_list {
	char **names; /* owned */
	size_t n;
};
int image_list_read(int dir, const char *prefix, struct image_list *ret);
void image_names_done(struct image_list *l);

/* Look up what a user wrote; -ENOENT. */
int image_names_find(const struct ak_paths *paths, const char *name, char ret_name[static IMAGE_NAME_MAX],
	char ret_id[static SHA256_HEX], struct ak_err *err);

/* With the lock held: call MOVE_IN (NULL: the image is in the store), then give the image the NAME. */
int image_names_add(const struct ak_paths *paths, const char *name, const char *id,
	int (*move_in)(int images, const struct image_work *w, const char *id), const struct image_work *w, struct ak_err *err);

#endif
