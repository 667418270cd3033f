/* Ports that are published while a command runs: see run/ports.h. */
#include "gateway/run/ports.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/ipc/ipc.h"
#include "gateway/store/publish.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define CLIENT_MAX_MS 2000 /* a client sends its request as soon as it has connected */

/* ---- the change ---- */

/* The request's ports, parsed. */
struct change {
	struct ak_publish add[AK_PUBLISH_MAX], drop[AK_PUBLISH_MAX];
	int listeners[AK_PUBLISH_MAX]; /* owned: of the ports to add; valid are the first n_listeners */
	size_t n_add, n_drop, n_listeners;
};

static void change_done(struct change *c)
{
	while (c->n_listeners)
		ak_close(c->listeners[--c->n_listeners]);
}

/* Is PORT the one that the user means by P: the same on the host, or the same inside if P leaves the host's open? */
static bool is_port(const struct ak_publish *port, const struct ak_publish *p)
{
	return ak_publish_clash(port, p) || (!p->host_port && port->port == p->port && ak_addr_eq(&port->addr, &p->addr));
}

/* LIST without P. */
static int without(struct ak_publish *list, size_t *n, const struct ak_publish *p, struct ak_publish *ret, const char *name,
	struct ak_err *err)
{
	char text[AK_PUBLISH_TEXT];

	for (size_t i = 0; i < *n; i++) {
		if (!is_port(&list[i], p))
			continue;
		*ret = list[i];
		for (--*n; i < *n; i++)
			list[i] = list[i + 1];
		return 0;
	}
	return ak_fail(err, EADDRNOTAVAIL, "run '%s' does not publish %s", name, ak_publish_host(p, text));
}

/* Work out the new LIST of *N ports, and open the listeners of those that are added. */
static int prepare(struct change *c, const char *name, struct ak_publish *list, size_t *n, struct ak_err *err)
{
	int rc = 0;

	if (!c->n_add == !c->n_drop) /* both cannot be done or undone as one */
		return ak_fail(err, EINVAL, "%s", c->n_add ? "publish or remove ports, not both at once" : "no port given");
	for (size_t i = 0; rc == 0 && i < c->n_drop; i++)
		rc = without(list, n, &c->drop[i], &c->drop[i], name, err);
	for (size_t i = 0; rc == 0 && i < c->n_add; i++) {
		rc = ak_publish_add(list, n, &c->add[i], err);
		if (rc < 0)
			return rc;
		c->listeners[i] = ak_publish_listen(&list[*n - 1], err);
		if (c->listeners[i] < 0)
			return c->listeners[i] == -EINVAL ? -EIO : c->listeners[i]; /* the request was well-formed */
		c->n_listeners++;
		c->add[i] = list[*n - 1];
	}
	return rc;
}

/* Either adds or removes. On failure what was added is removed again. */
static int apply(struct change *c, struct run_life *l, const struct run_ports_ops *ops, struct ak_err *err)
{
	size_t done = 0;
	int rc = 0;

	for (size_t i = 0; i < c->n_drop; i++)
		ops->close(l->ctx, &c->drop[i]);
	for (; rc == 0 && done < c->n_add; done += rc == 0)
		rc = ops->open(l->ctx, &c->add[done], c->listeners[done], err);
	while (rc < 0 && done > 0)
		ops->close(l->ctx, &c->add[--done]);
	return rc;
}

static int answer(const struct run_life *l, cJSON **ret, struct ak_err *err)
{
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();

	if (!obj || !cJSON_AddStringToObject(obj, "name", l->plan->name) ||
		!publish_put(obj, "publish", l->opts->publish, l->opts->n_publish))
		return ak_fail(err, ENOMEM, "out of memory");
	*ret = TAKE(obj);
	return 0;
}

int run_ports_change(struct run_life *l, struct run_request *opts, const cJSON *request, const struct run_ports_ops *ops,
	cJSON **ret, struct ak_err *err)
{
	_cleanup_(change_done) struct change c = { .n_add = 0 };
	struct ak_publish list[AK_PUBLISH_MAX];
	size_t n = opts->n_publish;
	int rc = publish_get(request, "publish", c.add, &c.n_add, err);

	memcpy(list, opts->publish, sizeof(list));
	if (rc == 0)
		rc = publish_get(request, "remove", c.drop, &c.n_drop, err);
	if (rc == 0 && l->state != LIFE_RUNNING)
		rc = ak_fail(err, ESRCH, "run '%s' has ended", l->plan->name);
	if (rc == 0 && !l->hosted)
		rc = ak_fail(err, EINVAL, "run '%s' has no network, and published ports are connected by the network gateway",
			l->plan->name);
	if (rc == 0)
		rc = prepare(&c, l->plan->name, list, &n, err);
	if (rc == 0)
		rc = apply(&c, l, ops, err);
	if (rc < 0)
		return rc;
	memcpy(opts->publish, list, sizeof(list));
	opts->n_publish = n;
	rundir_record_ports(&l->dir, l->plan, opts, c.n_add ? "publish" : "remove", c.n_add ? c.add : c.drop, c.n_add + c.n_drop);
	return answer(l, ret, err);
}

/* ---- the desk ---- */

/* The folder of a live run is locked by its process, so its place in the file system is a name that no other live run has. */
static void name_of(const struct stat *st, char ret[static IPC_NAME_MAX])
{
	snprintf(ret, IPC_NAME_MAX, "agentkernel-run-%llx-%llx", (unsigned long long)st->st_dev, (unsigned long long)st->st_ino);
}

void run_desk_init(struct run_desk *d)
{
	*d = (struct run_desk){ .listener = -1, .client = -1 };
}

static void drop_client(struct run_desk *d)
{
	d->client = ak_close(d->client);
	d->until_ms = 0;
}

void run_desk_done(struct run_desk *d)
{
	drop_client(d);
	d->listener = ak_close(d->listener);
}

void run_desk_open(struct run_desk *d, int dir_fd)
{
	char name[IPC_NAME_MAX];
	struct stat st;

	if (fstat(dir_fd, &st) < 0)
		return;
	name_of(&st, name);
	d->listener = ipc_listen_name(name);
}

int run_desk_fd(const struct run_desk *d)
{
	return d->client >= 0 ? d->client : d->listener;
}

static void take_client(struct run_desk *d)
{
	int fd = ipc_accept(d->listener);

	if (fd < 0)
		return;
	d->client = fd;
	d->until_ms = ak_now_ms() + CLIENT_MAX_MS;
}

bool run_desk_serve(struct run_desk *d, cJSON **ret)
{
	size_t none = 0;
	int rc;

	if (d->client < 0)
		take_client(d);
	if (d->client < 0)
		return false;
	rc = ipc_recv(d->client, ret, NULL, &none);
	if (rc > 0)
		return true;
	if (rc != -EAGAIN || ak_now_ms() >= d->until_ms)
		drop_client(d);
	return false;
}

void run_desk_answer(struct run_desk *d, int rc, const cJSON *obj, const struct ak_err *err)
{
	if (rc < 0)
		(void)ipc_send_error(d->client, -rc, err->text);
	else
		(void)ipc_send(d->client, obj, NULL, 0);
	drop_client(d);
}

int run_desk_connect(const char *dir, struct ak_err *err)
{
	char name[IPC_NAME_MAX];
	struct stat st;

	if (stat(dir, &st) < 0)
		return ak_fail_errno(err, errno, "%s", dir);
	name_of(&st, name);
	return ipc_connect_name(name, err);
}
