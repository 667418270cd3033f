/* Detached mounts for root's sandboxes: see trees.h. */
#include "vmctl/trees.h"

#include "gateway/base/cleanup.h"
#include "vmctl/internal.h"
#include "vmctl/mnt.h"
#include "vmctl/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

void sb_trees_init(struct sb_trees *t)
{
	t->n = 0;
	t->store = t->image = -1;
}

void sb_trees_close(struct sb_trees *t)
{
	while (t->n)
		ak_close(t->mounts[--t->n]);
	t->store = ak_close(t->store);
	t->image = ak_close(t->image);
}

int sb_tree_open(const struct sandbox_mount *m, struct ak_err *err)
{
	_cleanup_close_ int source = mnt_source_open(m, err);
	int tree;

	if (source < 0)
		return source;
	tree = mnt_clone(source, "", true);
	return tree < 0 ? ak_fail_errno(err, -tree, "mounting '%s'", m->source) : tree;
}

int sb_trees_open(struct sb_trees *t, const struct sandbox_spec *spec, struct ak_err *err)
{
	if (spec->n_mounts > SB_MOUNTS_MAX)
		return ak_fail(err, E2BIG, "more than %d mounts", SB_MOUNTS_MAX);
	for (size_t i = 0; i < spec->n_mounts; i++) {
		int tree = sb_tree_open(&spec->mounts[i], err);

		if (tree < 0)
			return tree;
		t->mounts[t->n++] = tree;
	}
	if (spec->image_root && (t->image = mnt_clone(AT_FDCWD, spec->image_root, false)) < 0)
		return ak_fail_errno(err, -t->image, "'%s'", spec->image_root);
	if (!spec->upper_dir)
		return 0;
	t->store = mnt_clone(AT_FDCWD, spec->upper_dir, false);
	return t->store < 0 ? ak_fail_errno(err, -t->store, "'%s'", spec->upper_dir) : 0;
}

/* A mount below may be of a file system that cannot be mapped; then map only the folder itself. */
static int map_tree(int tree, int user_ns)
{
	int rc = mnt_map_owners(tree, true, user_ns);

	return rc < 0 ? mnt_map_owners(tree, false, user_ns) : rc;
}

/* The namespace for the owner of the last mount: most of them have one owner. */
struct owner {
	uid_t uid;
	gid_t gid;
	int user_ns; /* owned; negative: none yet */
};

/*
 * An image's root can use many ids, which would be the host's own on disk. So only the owner of what is mounted exists there: files
 * can be given to nobody else, and new ones belong to that owner.
 */
static int map_owner(int tree, const struct sb_ids *ids, struct owner *o)
{
	struct stat st;

	if (fstat(tree, &st) < 0)
		return -errno;
	if (o->user_ns < 0 || o->uid != st.st_uid || o->gid != st.st_gid) {
		ak_close(o->user_ns);
		*o = (struct owner){ st.st_uid, st.st_gid, sb_ids_owner_ns(ids, st.st_uid, st.st_gid) };
	}
	return o->user_ns < 0 ? o->user_ns : map_tree(tree, o->user_ns);
}

static int give_tree(int tree, const struct sb_ids *ids)
{
	return fchownat(tree, "", ids->outer_uid, ids->outer_gid, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

static void note_unmapped(int ctl, const char *path, int rc)
{
	char note[256];

	snprintf(note, sizeof(note),
		"'%.150s': its file system cannot map owners (%s): the sandbox may change only what everybody may", path,
		strerror(-rc));
	if (ctl >= 0)
		sb_send(ctl, SB_MSG_NOTE, 0, note, -1);
}

void sb_trees_map(const struct sb_trees *t, const struct sandbox_spec *spec, const struct sb_ids *ids, int user_ns, int ctl)
{
	struct owner owner = { .user_ns = -1 };

	for (size_t i = 0; i < t->n; i++) {
		int rc = spec->mounts[i].given ? give_tree(t->mounts[i], ids)
			: sb_maps_range(ids)   ? map_owner(t->mounts[i], ids, &owner)
					       : map_tree(t->mounts[i], user_ns);

		if (rc < 0)
			note_unmapped(ctl, spec->mounts[i].source, rc);
	}
	ak_close(owner.user_ns);
	/* The store is ours alone: if it cannot be mapped, change its owner. */
	if (t->store >= 0 && map_tree(t->store, user_ns) < 0)
		(void)give_tree(t->store, ids);
}
