/*
 * Published ports in the daemon: it opens the host's ports, because the gateway process may not, and hands them over together with a channel to the
 * sandbox's init.
 *
 * The daemon keeps the listening sockets of persistent sandboxes, so that a gateway that is restarted gets the same ones; clients wait in the backlog
 * meanwhile. A daemon that adopts a running sandbox opens them again.
 */
#include "gateway/daemon/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/say.h"
#include "gateway/log/events.h"
#include "gateway/store/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static void on_published(void *ctx, int rc, const struct gw_msg *answer, const struct ak_err *err)
{
	if (rc < 0)
		ak_say("%s", err->text);
}

void port_send(struct daemon *d, uint32_t id, const struct ak_publish *at, int listener, int channel)
{
	struct gw_msg msg = { .type = GW_MSG_PUBLISH, .id = id, .publish = *at };

	(void)dgw_send(d, &msg, (const int[]){ listener, channel }, 2, on_published, NULL);
}

/* ---- open and close ---- */

/* Open the port I of the state. */
static int port_open(struct dsb *sb, size_t i, struct ak_err *err)
{
	sb->ports[i] = sb->state.publish[i];
	sb->listeners[i] = ak_publish_listen(&sb->ports[i], err);
	return sb->listeners[i] < 0 ? sb->listeners[i] : 0;
}

int dsb_ports_open(struct dsb *sb, struct ak_err *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < sb->state.n_publish; i++) {
		rc = port_open(sb, i, err);
		sb->n_ports = i + (rc == 0);
	}
	if (rc < 0)
		dsb_ports_close(sb);
	return rc;
}

void dsb_ports_reopen(struct dsb *sb)
{
	struct ak_err err;

	for (size_t i = 0; i < sb->state.n_publish; i++) {
		if (port_open(sb, i, &err) < 0)
			ak_say("%s: %s", sb->state.name, err.text);
	}
	sb->n_ports = sb->state.n_publish;
}

void dsb_ports_close(struct dsb *sb)
{
	while (sb->n_ports)
		ak_close(sb->listeners[--sb->n_ports]);
}

void dsb_ports_note(struct dsb *sb)
{
	for (size_t i = 0; i < sb->n_ports; i++) {
		size_t len = strlen(sb->notes);
		char note[AK_PUBLISH_NOTE];

		if (ak_publish_note(&sb->state.publish[i], &sb->ports[i], note)[0])
			snprintf(sb->notes + len, sizeof(sb->notes) - len, "%s\n", note);
	}
}

/* ---- hand over ---- */

/* The supervisor passes the channel on to init. */
static int send_channel(struct dsb *sb, int fd)
{
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();

	if (!obj || !cJSON_AddStringToObject(obj, "op", "channel"))
		return -ENOMEM;
	ipc_peer_send(sb->super, obj, &fd, 1);
	return 0;
}

static void port_serve(struct dsb *sb, size_t i)
{
	_cleanup_close_ int listener = -1, ours = -1, theirs = -1;
	struct ak_err err = { .text = "out of memory" };
	int rc = ak_channel_open(&ours, &theirs, &err);

	if (rc == 0) {
		listener = fcntl(sb->listeners[i], F_DUPFD_CLOEXEC, 3);
		rc = listener < 0 ? ak_fail_errno(&err, errno, "published port") : send_channel(sb, theirs);
	}
	if (rc < 0)
		ak_say("%s: %s", sb->state.name, err.text);
	else
		port_send(sb->d, sb->state.link_id, &sb->ports[i], TAKE_FD(listener), TAKE_FD(ours));
}

void dsb_ports_serve(struct dsb *sb)
{
	if (!sb->super || !sb->hosted)
		return;
	for (size_t i = 0; i < sb->n_ports; i++) {
		if (sb->listeners[i] >= 0)
			port_serve(sb, i);
	}
}

/* ---- change while it runs ---- */

/* The request's ports, parsed. */
struct change {
	struct ak_publish add[AK_PUBLISH_MAX], drop[AK_PUBLISH_MAX];
	size_t n_add, n_drop;
};

/* Is port I of the sandbox the one that the user means by P: the host's side as it is shown, or the whole as it was asked for? */
static bool is_port(const struct dsb *sb, size_t i, const struct ak_publish *p)
{
	const struct ak_publish *asked = &sb->state.publish[i];

	if (i < sb->n_ports && ak_publish_clash(&sb->ports[i], p))
		return true;
	return ak_addr_eq(&asked->addr, &p->addr) && asked->host_port == p->host_port && (p->host_port || asked->port == p->port);
}

static int find_port(const struct dsb *sb, const struct ak_publish *p, size_t *ret, struct ak_err *err)
{
	char text[AK_PUBLISH_TEXT];

	for (*ret = 0; *ret < sb->state.n_publish; ++*ret) {
		if (is_port(sb, *ret, p))
			return 0;
	}
	return ak_fail(err, ENOENT, "sandbox '%s' does not publish %s", sb->state.name, ak_publish_host(p, text));
}

static int check_change(const struct dsb *sb, const struct change *c, struct ak_err *err)
{
	struct ak_publish list[AK_PUBLISH_MAX];
	size_t n = 0, at;
	bool gone[AK_PUBLISH_MAX] = { false };
	int rc = 0;

	if (!c->n_add == !c->n_drop) /* both cannot be done or undone as one */
		return ak_fail(err, EINVAL, "%s", c->n_add ? "publish or remove ports, not both at once" : "no port given");
	if (!state_network(&sb->state))
		return ak_fail(err, EINVAL,
			"sandbox '%s' has no network, and published ports are connected by the network gateway", sb->state.name);
	for (size_t i = 0; rc == 0 && i < c->n_drop; i++) {
		rc = find_port(sb, &c->drop[i], &at, err);
		gone[rc == 0 ? at : 0] |= rc == 0;
	}
	for (size_t i = 0; rc == 0 && i < sb->state.n_publish; i++) {
		if (!gone[i])
			list[n++] = sb->state.publish[i];
	}
	for (size_t i = 0; rc == 0 && i < c->n_add; i++)
		rc = ak_publish_add(list, &n, &c->add[i], err);
	return rc;
}

/* Close the port I and cut its connections. */
static void port_drop(struct dsb *sb, size_t i)
{
	struct gw_msg msg = { .type = GW_MSG_UNPUBLISH, .id = sb->state.link_id };
	size_t last = --sb->state.n_publish;

	if (i < sb->n_ports) {
		msg.publish = sb->ports[i];
		ak_close(sb->listeners[i]);
		if (sb->hosted && sb->listeners[i] >= 0)
			(void)dgw_send(sb->d, &msg, NULL, 0, NULL, NULL);
		sb->n_ports--;
		memmove(&sb->ports[i], &sb->ports[i + 1], (last - i) * sizeof(sb->ports[0]));
		memmove(&sb->listeners[i], &sb->listeners[i + 1], (last - i) * sizeof(sb->listeners[0]));
	}
	memmove(&sb->state.publish[i], &sb->state.publish[i + 1], (last - i) * sizeof(sb->state.publish[0]));
}

/* Add a port, and open it if the sandbox runs. */
static int port_add(struct dsb *sb, const struct ak_publish *p, struct ak_err *err)
{
	size_t i = sb->state.n_publish;
	int rc = 0;

	sb->state.publish[i] = *p;
	if (sb->status == DSB_RUNNING) {
		rc = port_open(sb, i, err);
		sb->n_ports += rc == 0;
	}
	sb->state.n_publish += rc == 0;
	return rc;
}

/* Either adds or removes. On failure what was added is removed again. */
static int apply(struct dsb *sb, const struct change *c, struct ak_err *err)
{
	size_t at, first;
	int rc = 0;

	for (size_t i = 0; i < c->n_drop; i++) {
		if (find_port(sb, &c->drop[i], &at, err) == 0)
			port_drop(sb, at);
	}
	first = sb->state.n_publish;
	for (size_t i = 0; rc == 0 && i < c->n_add; i++)
		rc = port_add(sb, &c->add[i], err);
	if (rc == 0)
		rc = state_save(sb->d->paths, &sb->state, err);
	for (size_t i = sb->state.n_publish; i > first; i--) {
		if (rc < 0)
			port_drop(sb, i - 1);
		else if (i - 1 < sb->n_ports && sb->super && sb->hosted)
			port_serve(sb, i - 1);
	}
	return rc;
}

static void record(const struct dsb *sb, const struct request *r)
{
	static const char *const keys[] = { "publish", "remove" };
	_cleanup_strbuf_ struct strbuf more = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		const cJSON *list = cJSON_GetObjectItemCaseSensitive(r->obj, keys[i]);
		_cleanup_free_ char *text = list ? cJSON_PrintUnformatted(list) : NULL;

		if (text)
			strbuf_printf(&more, ",\"%s\":%s", keys[i], text);
	}
	event_put_text(&more, "origin", state_origin(&sb->state));
	event_write(sb->d->paths, "sandbox_publish", sb->state.name, &more);
}

void op_publish(struct request *r)
{
	struct dsb *sb = r->sb;
	struct change c = { .n_add = 0 };
	struct ak_err err;
	int rc = publish_get(r->obj, "publish", c.add, &c.n_add, &err);

	if (rc == 0)
		rc = publish_get(r->obj, "remove", c.drop, &c.n_drop, &err);
	if (rc == 0)
		rc = check_change(sb, &c, &err);
	if (rc == 0)
		rc = apply(sb, &c, &err);
	if (rc < 0) {
		request_fail(r, -rc, err.text);
		return;
	}
	record(sb, r);
	request_answer(r, dsb_info(sb));
}
